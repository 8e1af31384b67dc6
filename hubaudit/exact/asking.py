"""Models whose code asks whether it is on the meta device, and then makes tensors on the host: there as on any other device."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Of transformers 5.23: model type, classes, method.
_ASKING = (("longt5", ("LongT5LocalAttention", "LongT5TransientGlobalAttention"), "compute_bias"),)


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """What to put in the place of what: owner, name, replacement. Only of what is imported already."""
    for name, owners, method in _ASKING:
        module = sys.modules.get(f"transformers.models.{name}.modeling_{name}")
        for owner in (getattr(module, one, None) for one in owners):
            if hasattr(owner, method):
                yield owner, method, _on_meta(getattr(owner, method))


def _on_meta(plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        with torch.device("meta"):
            return plain(*args, **kwargs)

    return method
