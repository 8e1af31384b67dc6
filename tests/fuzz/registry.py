"""What is fuzzed: one `Target` for each parser, registered where it is defined, tried the same way by every engine.

A target is a function of bytes. It may return, or raise one of the errors that its parser documents; anything else, and more time
than a case may take, is a failure. The engines are libFuzzer through atheris (`fuzz.run`) and hypothesis (`test_targets.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

HERE = Path(__file__).resolve().parent
MODULES = {
    "fuzz.safetensors_header": ("safetensors-file", "safetensors-header-text", "safetensors-served-header"),
    "fuzz.gguf_header": ("gguf-file",),
    "fuzz.torch_checkpoint": ("zip-directory", "pickle-opcodes", "torch-pickle", "torch-file"),
    "fuzz.documents": ("shard-index", "parts-tables", "tokenizer"),
    "fuzz.repositories": ("repository", "gguf-audit"),
    "fuzz.configs": ("config-audit", "config-text"),
    "fuzz.cards": ("card-document", "card-claims"),
    "fuzz.bundles": ("bundle-file", "bundle-contents"),
    "fuzz.journals": ("journal", "journal-plan", "batch-list"),
}
"""What each module defines, so that an engine loads that of its target only."""
MOST_SECONDS = 3.0
"""Processor time that no case of at most `MOST_BYTES` may take, on a slow and busy machine."""
MOST_BYTES = 16_384


class TooSlowError(AssertionError):
    """A case took longer than any may."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One parser: `run` gives it bytes, `allowed` are the errors that it documents, `seeds` makes inputs that it accepts.

    `dictionary` are words of its language, which a fuzzer would take long to guess.
    """

    name: str
    run: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    seeds: Callable[[], Iterable[bytes]]
    dictionary: tuple[bytes, ...] = field(default=())


_TARGETS: dict[str, Target] = {}


def target(
    name: str,
    *,
    allowed: tuple[type[Exception], ...],
    seeds: Callable[[], Iterable[bytes]],
    dictionary: Iterable[bytes] = (),
) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Registers the function that it decorates."""

    def register(run: Callable[[bytes], None]) -> Callable[[bytes], None]:
        assert name not in _TARGETS, f"two targets are called {name}"
        _TARGETS[name] = Target(name=name, run=run, allowed=allowed, seeds=seeds, dictionary=tuple(dictionary))
        return run

    return register


def targets() -> Mapping[str, Target]:
    """All targets by name."""
    for module in MODULES:
        import_module(module)
    return _TARGETS


def target_of(name: str) -> Target:
    """One target; only its own module is loaded."""
    import_module(next(module for module, names in MODULES.items() if name in names))
    return _TARGETS[name]


def tried(one: Target, data: bytes) -> str | None:
    """Run one case: `None` where it was accepted, else the kind of the documented error. Anything else escapes."""
    began = time.process_time()
    try:
        one.run(data)
        return None
    except one.allowed as error:
        assert str(error).isprintable(), f"an error's message holds raw text: {str(error)[:200]!a}"
        return type(error).__name__
    finally:
        spent = time.process_time() - began
        if spent > MOST_SECONDS and len(data) <= MOST_BYTES:
            raise TooSlowError(f"{spent:.1f} s for {len(data)} bytes")


#: Cards claim nothing or something, journals and lists keep the lines that are some, and choices always make something to audit.
TARGETS_WITHOUT_REFUSAL = frozenset(
    {
        "card-claims",
        "card-document",
        "journal",
        "batch-list",
        "config-audit",
        "repository",
        "bundle-contents",
        "safetensors-served-header",
    }
)
