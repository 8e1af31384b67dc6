"""How many elements of a tensor without data are not zero: which experts get which tokens, where a model gathers them expert by expert.

What a router decides is in its weights. Two answers bound it: every expert gets as many tokens, or the first few get all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hubaudit.exact.plan import BALANCED

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.exact.tracer import Tracer

aten = torch.ops.aten


class Routing:
    """The answers of one run. ``way`` is ``balanced``, ``worst``, or ``None``: nothing is anywhere, as on a device without data.

    A vector that is asked for its non-zero elements says which experts are hit, and a matrix (choices x tokens) after it which tokens are one
    expert's. Masks that no vector went before are of tokens that an ordinary prompt does not hold, such as those of images.
    """

    def __init__(self, way: str | None) -> None:
        self.way = way
        self.was_asked = False
        self._experts = 0
        self._served = 0

    def overrides(self) -> dict[Any, Any]:
        """For a tracer."""
        by_mask = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
        return {aten.nonzero.default: self._nonzero} | {func: _expanding(func) for func in by_mask}

    def _nonzero(self, tracer: Tracer, values: Any) -> Any:
        if values.device.type != "meta":
            return NotImplemented
        with tracer:
            return torch.empty((self._count(values.shape), values.dim()), dtype=torch.long, device="meta")

    def _count(self, shape: Any) -> int:
        if self.way is None:
            return 0
        if len(shape) == 1:
            self._experts, self._served = int(shape[0]), 0
            return self._experts
        if len(shape) != 2 or not self._experts:
            return 0
        self.was_asked = True
        choices, tokens = map(int, shape)
        if self.way == BALANCED:
            return -(-choices * tokens // self._experts)
        self._served += 1
        return tokens if self._served <= choices else 0


def _expanding(func: Any) -> Callable[..., Any]:
    """The operator with its masks as numbers, as CUDA's takes them (IndexingUtils.h: expandTensors)."""

    def override(tracer: Tracer, values: Any, indices: Any, *rest: Any) -> Any:
        if not any(_is_mask(one) for one in indices):
            return NotImplemented
        with tracer:
            parts = [torch.nonzero(one).unbind(1) if _is_mask(one) else (one,) for one in indices]
            return func(values, [one for part in parts for one in part], *rest)

    return override


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8) and index.device.type == "meta"
