"""A token drawn by chance as torch's CUDA build draws it: a dispatch mode is shown one operator, which is made of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from hubaudit.exact.tracer import Tracer

aten = torch.ops.aten


def overrides() -> dict[Any, Any]:
    """``multinomial``, which computes on copies of the probabilities (Distributions.cpp of torch 2.13)."""
    return {aten.multinomial.default: _drawn}


def _drawn(tracer: Tracer, values: Any, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Any:
    """First whether all are probabilities and no row sums to nothing, then the largest of them divided by numbers of chance."""
    if values.device.type != "meta" or (replacement and num_samples > 1):
        return NotImplemented
    with tracer:
        made = torch.empty((*values.shape[:-1], num_samples), dtype=torch.long, device=values.device)
        _looked_at(values)
        divided = torch.empty_like(values)
        if num_samples == 1:
            torch.argmax(divided, -1, keepdim=True)
        else:
            torch.topk(divided, num_samples)
    return made


def _looked_at(values: Any) -> None:
    """What is made while the probabilities are checked; the answers are known."""
    (values.max() < float("inf")) & (values.min() >= 0)
    (values.sum(-1) == 0).sum()
