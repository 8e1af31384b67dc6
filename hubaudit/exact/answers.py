"""What a program reads from tensors that hold no data: what an unpadded prompt with ordinary values would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

if TYPE_CHECKING:
    from hubaudit.exact.tracer import Tracer

aten = torch.ops.aten
_IS_NAN = "aten::isnan"
_TRUE = ("aten::all", "aten::ge", "aten::is_nonzero")


class Answers:
    """The answers of one run."""

    def __init__(self) -> None:
        self._counted: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def notice(self, tracer: Tracer, func: Any, args: Any, result: Any) -> None:
        """``mask.sum() == mask.numel()`` asks whether all are set (transformers' masking_utils.fast_all), ``x.isnan().sum() == 0`` whether all are numbers."""
        if func is aten.ne.Tensor and args[0] is args[1]:
            tracer.rename(result, _IS_NAN)
        elif func is aten.sum.default:
            is_nans = tracer.operator_of(args[0]) == _IS_NAN
            self._counted[result.untyped_storage()] = 0 if is_nans else args[0].numel()
        elif func is aten.eq.Scalar and self._counted.get(args[0].untyped_storage()) == args[1]:
            tracer.rename(result, "aten::all")

    def number(self, tensor: Any, operator: str) -> bool | int | float:
        """A number read from a tensor that ``operator`` made."""
        if tensor.dtype == torch.bool:
            return operator in _TRUE
        return 1.0 if tensor.dtype.is_floating_point else 1
