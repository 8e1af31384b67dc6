"""transformers' static cache: allocated at once for a maximum length, and how much of it a workload uses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.estimate.cache import Counting, grown, owned_tensors, states
from hubaudit.estimate.component import Parts

if TYPE_CHECKING:
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import CacheTensor, LayerSpec, ModelFacts

_SOURCE = (
    "transformers 5.23.0: cache_utils.py, StaticLayer and StaticSlidingWindowLayer (the whole window, where the growing cache keeps one "
    "token less); generation/utils.py: the length is max_length - 1, or max_cache_len where that is more"
)
_ENCODER = "encoder_tokens"


def static_components(facts: ModelFacts, setting: Setting) -> Parts:
    """All that is allocated, and as a note the part of it that the workload fills.

    Raises:
        UsageError: a layer keeps what transformers has no static layer for.
    """
    plan = facts.layer_plan or ()
    counting = static_counting(facts, setting)
    owned = static_tensors(plan)
    growing = [tensor for tensor in owned if tensor.elements_per_token and tensor.grows_with != _ENCODER]
    crossing = [tensor for tensor in owned if tensor.elements_per_token and tensor.grows_with == _ENCODER]
    cache = grown("kv_cache", growing, counting, setting, facts)
    found = (cache, grown("cross_cache", crossing, counting, setting, facts), states(owned, setting, facts))
    filled = grown("kv_cache", growing, _filled(facts), setting, facts)
    said: tuple[str, ...] = ()
    if cache is not None and filled is not None:
        said = (f"the workload fills {filled.bytes:,} of the {cache.bytes:,} bytes of the static cache",)
    return Parts(components=tuple(part for part in found if part is not None), assumptions=said)


def static_counting(facts: ModelFacts, setting: Setting) -> Counting:
    """The length that the cache is allocated for: the last new token is never fed back, so it needs no place."""
    needed = "new_tokens" if facts.family == "encoder-decoder" else "max(prompt_tokens, prompt_tokens + new_tokens - 1)"
    length = f"max({needed}, max_cache_len)" if setting.max_cache_len.value else needed
    return Counting(
        formulas={"tokens": length, _ENCODER: _ENCODER},
        inputs={"max_cache_len": setting.max_cache_len},
        source=_SOURCE,
    )


def static_tensors(plan: tuple[LayerSpec, ...]) -> list[CacheTensor]:
    """The tensors with the windows that static layers have.

    Raises:
        UsageError: entries of several tokens, or of the prompt alone, which no static layer of the library keeps.
    """
    owned = owned_tensors(plan)
    for tensor in owned:
        if tensor.elements_per_token and not _is_simple(tensor):
            raise UsageError(f"transformers has no static cache for {tensor.name.replace('_', ' ')}")
    return [
        tensor
        if tensor.window_tokens is None or tensor.grows_with == _ENCODER
        else replace(tensor, window_tokens=tensor.window_tokens + 1)
        for tensor in owned
    ]


def _filled(facts: ModelFacts) -> Counting:
    needed = "new_tokens" if facts.family == "encoder-decoder" else "max(prompt_tokens, prompt_tokens + new_tokens - 1)"
    return Counting(formulas={"tokens": needed, _ENCODER: _ENCODER}, source=_SOURCE)


def _is_simple(tensor: CacheTensor) -> bool:
    return tensor.tokens_per_entry == 1 and not tensor.unfinished and tensor.grows_with in ("tokens", _ENCODER)
