"""What a program reads from whole numbers that it took to the device itself, as a static cache does with its length."""

from __future__ import annotations

import operator as operators
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from hubaudit.exact.answers import Answers

if TYPE_CHECKING:
    from hubaudit.exact.tracer import Tracer

aten = torch.ops.aten
_COMPARED = {
    aten.gt.Scalar: operators.gt,
    aten.ge.Scalar: operators.ge,
    aten.lt.Scalar: operators.lt,
    aten.le.Scalar: operators.le,
    aten.eq.Scalar: operators.eq,
    aten.ne.Scalar: operators.ne,
}


class Lengths(Answers):
    """The answers of one run, true ones where they can be known."""

    def __init__(self) -> None:
        super().__init__()
        self._known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def notice(self, tracer: Tracer, func: Any, args: Any, result: Any) -> None:
        """Follow what comes from the host: what it becomes by sums, and how it compares."""
        super().notice(tracer, func, args, result)
        if func is aten._to_copy.default:
            before = args[0]
            if (
                result.is_meta
                and before.device.type == "cpu"
                and before.numel() == 1
                and not before.is_floating_point()
            ):
                self._known[result.untyped_storage()] = int(before)
        elif self._known and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            self._follow(func, args, result)

    def _follow(self, func: Any, args: Any, result: Any) -> None:
        storage = args[0].untyped_storage()
        known = self._known.get(storage)
        if known is None:
            return
        if func in _COMPARED and isinstance(args[1], (int, float)):
            self._known[result.untyped_storage()] = _COMPARED[func](known, args[1])
        elif func is aten.add_.Tensor and isinstance(args[1], int):
            self._known[storage] = known + args[1]
        elif func._schema.is_mutable:
            del self._known[storage]

    def number(self, tensor: Any, operator: str) -> bool | int | float:
        """A number read from a tensor: the true one where it is known."""
        known = self._known.get(tensor.untyped_storage())
        return super().number(tensor, operator) if known is None else known
