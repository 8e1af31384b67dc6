"""What each engine allocates for one workload: one module an engine, found by the name that the command line gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.estimate.runtimes import llama_cpp, transformers, vllm

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.estimate.component import Parts
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """An engine: its caches, what it makes of the weights, and what it holds beside both."""

    cache: Callable[[ModelFacts, Setting], Parts]
    loaded: Callable[[ModelFacts, Component], Component]
    beside: Callable[[ModelFacts, Setting], Parts]


RUNTIMES = {
    "transformers": Runtime(cache=transformers.cache, loaded=transformers.loaded, beside=transformers.beside),
    "vllm": Runtime(cache=vllm.cache, loaded=vllm.loaded, beside=vllm.beside),
    "llama.cpp": Runtime(cache=llama_cpp.cache, loaded=llama_cpp.loaded, beside=llama_cpp.beside),
}
