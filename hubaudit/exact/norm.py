"""``rms_norm`` as torch's CUDA build runs it: one kernel each way, where other devices go through its steps (layer_norm.cpp of torch 2.13)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it

from hubaudit.exact.autocast import Autocast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_HALF = (torch.float16, torch.bfloat16)


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """What to put in the place of what: owner, name, replacement."""
    if hasattr(F, "rms_norm"):
        yield F, "rms_norm", partial(_rms_norm, F.rms_norm)


def _rms_norm(
    plain: Callable[..., Any],
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    eps: float | None = None,
) -> Any:
    """The result; for the backward pass the input, the weight and one number of 32 bits a row are kept."""
    if Autocast.current() is not None:  # it is on the list of what runs in 32 bits
        weight, input = _raised(weight), _raised(input)
    if input.device.type != "meta" or (weight is not None and weight.dtype != input.dtype):
        return plain(input, normalized_shape, weight, eps)
    return _Fused.apply(input, weight, len(normalized_shape))


def _raised(tensor: Any) -> Any:
    return tensor.float() if tensor is not None and tensor.dtype in _HALF else tensor


class _Fused(torch.autograd.Function):  # type: ignore[misc]
    """What the kernels make, and in which order: copies of what does not lie in order, then the results."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, depth: int) -> Any:
        rows = input.contiguous()
        made = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)
        shape = (*rows.shape[: rows.dim() - depth], *(1,) * depth)
        dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        ctx.save_for_backward(input, weight, torch.empty(shape, dtype=dtype, device=rows.device))
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, Any, None]:
        input, weight, _ = ctx.saved_tensors
        kept = (gradients[0].contiguous(), input.contiguous())
        of_input, of_weight = ctx.needs_input_grad[:2]
        made = torch.empty(input.shape, dtype=input.dtype, device=input.device) if of_input else None
        summed = torch.empty(weight.shape, dtype=weight.dtype, device=input.device) if of_weight else None
        del kept
        return made, summed, None
