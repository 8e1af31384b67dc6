"""What torch does in place unless somebody watches: a dispatch mode is shown copies instead, and takes them back here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from hubaudit.exact.tracer import Tracer

aten = torch.ops.aten
#: Formulas of FunctionsManual.cpp that fill a tensor of zeros: by the operator in place, but for areAnyTensorSubclassLike.
_FILLS = {
    aten.index_put.default: aten.index_put_.default,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.index_add.default: aten.index_add_.default,
}


def in_place(tracer: Tracer, func: Any, args: Any, *, is_backward: bool) -> Any:
    """The tensor that the operator was made to write into where torch, were it not watched, would make no new one; else ``None``."""
    if func is aten.add.Tensor:
        if is_backward and _adds_in_place(tracer, args):
            return aten.add_.Tensor(*args)
        return aten.alias.default(args[0]) if tracer.overwrites_scores and _is_whole(*args) else None
    if not is_backward or func not in _FILLS or args[0].device.type != tracer.device_type:
        return None
    if "zeros" not in tracer.operator_of(args[0]) or _holders(args).python > sole_owner().python:
        return None
    return _FILLS[func](*args)


def _is_whole(scores: Any, mask: Any) -> bool:
    """Whether the sum is as large as its first part."""
    return isinstance(mask, torch.Tensor) and torch.broadcast_shapes(scores.shape, mask.shape) == scores.shape


def _adds_in_place(tracer: Tracer, args: Any) -> bool:
    """Whether autograd, were it not watched, would add the second gradient into the first instead of making a sum.

    It does so where it alone holds the first (torch/csrc/autograd/input_buffer.cpp: can_accumulate_inplace); a dispatch mode keeps
    it from that, as it cannot know whether the mode holds it too.
    """
    if torch.is_grad_enabled() or len(args) != 2 or not isinstance(args[1], torch.Tensor):
        return False
    if args[0].device.type != tracer.device_type or not _are_alike(*args):
        return False
    holders, sole = _holders(args), sole_owner()
    return all(now <= alone for now, alone in zip(holders, sole, strict=True))


def _are_alike(first: Any, second: Any) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and _is_dense(first)


def _is_dense(tensor: Any) -> bool:
    expected = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1
    ):
        if stride != expected:
            return False
        expected *= size
    return True


class Holders(NamedTuple):
    """How many hold an operator's first tensor, while a dispatch mode looks at it."""

    tensor: int
    storage: int
    python: int


def _holders(args: Any) -> Holders:
    """What holds the first of ``args``; give the arguments, as a name for the tensor would hold it too."""
    return Holders(
        args[0]._use_count(),
        torch._C._storage_Use_Count(args[0].untyped_storage()._cdata),
        sys.getrefcount(args[0]),
    )


_SOLE: list[Holders] = []


def sole_owner() -> Holders:
    """What holds a gradient that autograd alone holds, as a dispatch mode sees it: measured once, as the counts are torch's own affair."""
    if not _SOLE:
        x = torch.empty(4, 4, device="meta", requires_grad=True)
        with _Counter():
            y = x * 2
            (torch.relu(y) + torch.tanh(y)).sum().backward()
    return _SOLE[0]


class _Counter(TorchDispatchMode):  # type: ignore[misc]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.add.Tensor and torch._C._current_graph_task_id() != -1:
            _SOLE.append(_holders(args))
        return func(*args, **(kwargs or {}))
