"""Bitsandbytes' LLM.int8 modules on the meta device, and its products as the CUDA backend does them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.exact.tracer import Tracer

_SLOWEST_PRODUCT = 4


def fill(module: Any) -> None:
    """Give a Linear8bitLt the tensors that a loaded one holds: bytes, and one scale a row."""
    import torch
    from bitsandbytes.nn import Int8Params

    rows, columns = module.out_features, module.in_features
    values = torch.empty((rows, columns), dtype=torch.int8, device="meta")
    scales = torch.empty(rows, dtype=torch.float32, device="meta")
    made = Int8Params(values, requires_grad=False, has_fp16_weights=False, SCB=scales)
    made.CB = made.data
    module._parameters["weight"] = made


def scales(module: Any) -> Iterator[Any]:
    """A module's scales, wherever it keeps them now: with its weight, and after its first product in its state."""
    for holder in (module.weight, module.state):
        found = getattr(holder, "SCB", None)
        if found is not None:
            yield found


def overrides() -> dict[Any, Any]:
    """The operators that have no meta kernel: how many columns hold outliers is known from data only, and taken to be none.

    The steps are those of bitsandbytes 0.50.2 (backends/cuda/ops.py and backends/default/ops.py), in its order.
    """
    import torch

    operators = torch.ops.bitsandbytes
    return {
        operators.int8_vectorwise_quant.default: _quantized_rows,
        operators.int8_mixed_scaled_mm.default: _mixed_product,
        operators.int8_scaled_mm.default: _product,
    }


def _quantized_rows(tracer: Tracer, values: Any, threshold: float = 0.0) -> Any:
    """Bytes and a scale a row. Where outliers are looked for, whether there are any is read, and then which columns have them."""
    import torch

    with tracer:
        stats = torch.empty(values.numel() // values.shape[-1], dtype=torch.float32, device=values.device)
        rows = torch.empty(values.shape, dtype=torch.int8, device=values.device)
        columns = None
        if threshold > 0.0:
            outliers = values.abs() >= threshold
            outliers.any()
            columns = torch.empty(0, dtype=torch.int64, device=values.device)
            del outliers
    return rows, stats, columns


def _mixed_product(
    tracer: Tracer,
    a: Any,
    quantized: Any,
    weight: Any,
    row_scales: Any,
    scales: Any,
    columns: Any = None,
    bias: Any = None,
) -> Any:
    """The product in bytes; no column is computed beside it."""
    import torch

    with tracer:
        apart = torch.empty(0, dtype=a.dtype, device=a.device)
        return _product(tracer, quantized, weight, row_scales, scales, bias=bias, dtype=a.dtype), apart


def _product(
    tracer: Tracer, a: Any, weight: Any, row_scales: Any, scales: Any, bias: Any = None, dtype: Any = None
) -> Any:
    """Sums of 32 bits, then halves, to which a bias of another type is added, then the type that was asked for."""
    import torch

    with tracer:
        sums = torch.empty((*a.shape[:-1], weight.shape[0]), dtype=torch.int32, device=a.device)
        if a.shape[-1] % _SLOWEST_PRODUCT:  # cuBLASLt takes no such rows
            sums.copy_(torch.matmul(a.float(), weight.float().t()).to(torch.int32))
        halves = torch.empty_like(sums, dtype=torch.float16)
        if bias is not None and bias.dtype != torch.float16:
            halves.add_(bias)
        return halves.to(dtype or torch.float16)
