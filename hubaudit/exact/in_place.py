"""What torch does in place unless somebody watches: a dispatch mode is shown copies instead, and takes them back here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from hubaudit.exact.tracer import Tracer

aten = torch.ops.aten
#: Formulas of FunctionsManual.cpp that fill a tensor of zeros: by the operator in place, but for areAnyTensorSubclassLike.
_FILLS = (aten.index_put.default, aten.scatter_add.default, aten.scatter.src, aten.index_add.default)


def in_place(tracer: Tracer, func: Any, args: Any, *, is_backward: bool) -> Any:
    """The tensor that the operator writes into where torch, were it not watched, would make no new one; else ``None``."""
    if func is aten.add.Tensor:
        if is_backward and _adds_in_place(tracer, args):
            return args[0]
        return aten.alias.default(args[0]) if tracer.overwrites_scores and _is_whole(*args) else None
    is_fill = is_backward and func in _FILLS and args[0].device.type == tracer.device_type
    return args[0] if is_fill and "zeros" in tracer.operator_of(args[0]) else None


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
    first, second = args
    if first.device.type != tracer.device_type or first.dtype != second.dtype or not _is_dense(first):
        return False
    storage = first.untyped_storage()
    counts = (first._use_count(), torch._C._storage_Use_Count(storage._cdata))
    sole = sole_owner_counts()
    return bool(counts[0] <= sole[0] and counts[1] <= sole[1])


def _is_dense(tensor: Any) -> bool:
    expected = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1
    ):
        if stride != expected:
            return False
        expected *= size
    return True


_COUNTS: list[tuple[int, int]] = []


def sole_owner_counts() -> tuple[int, int]:
    """Use counts of a gradient that autograd alone holds, as a dispatch mode sees them: measured once, as they are torch's own affair."""
    if not _COUNTS:
        x = torch.empty(4, 4, device="meta", requires_grad=True)
        with _Counter():
            y = x * 2
            (torch.relu(y) + torch.tanh(y)).sum().backward()
    return _COUNTS[0]


class _Counter(TorchDispatchMode):  # type: ignore[misc]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.add.Tensor and torch._C._current_graph_task_id() != -1:
            storage = args[0].untyped_storage()
            _COUNTS.append((args[0]._use_count(), torch._C._storage_Use_Count(storage._cdata)))
        return func(*args, **(kwargs or {}))
