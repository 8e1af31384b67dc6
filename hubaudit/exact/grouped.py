"""Experts' grouped products of types for which torch's meta kernel has no answer, and its CUDA build has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from hubaudit.exact.tracer import Tracer

_ALIGNED_BYTES = 16


def overrides() -> dict[Any, Any]:
    """``_grouped_mm``, whose meta kernel takes bfloat16 only."""
    return {torch.ops.aten._grouped_mm.default: _product}


def _product(tracer: Tracer, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """The result alone: of other types CUDA multiplies group by group into it (GroupedMMUtils.h of torch 2.13)."""
    if a.dtype == torch.bfloat16 == b.dtype:
        return NotImplemented
    groups = () if offs is None else (offs.shape[0],)
    if a.dim() == 3:
        shape = (a.shape[0], a.shape[1], b.shape[2]) if b.dim() == 3 else (a.shape[1], b.shape[1])
    else:
        shape = (*(groups if b.dim() == 2 else ()), a.shape[0], b.shape[-1])
    with tracer:
        return torch.empty_strided(
            shape, _strides(shape, a.element_size()), dtype=out_dtype or a.dtype, device=a.device
        )


def _strides(shape: tuple[int, ...], value_bytes: int) -> tuple[int, ...]:
    """Rows begin at multiples of 16 bytes."""
    values = _ALIGNED_BYTES // value_bytes
    row = -(-shape[-1] // values) * values
    return (row, 1) if len(shape) == 2 else (row * shape[-2], row, 1)
