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
    """The products of 8-bit layers, by the steps and in the order of bitsandbytes 0.50.2 (backends/cuda/ops.py, backends/default/ops.py).

    On the meta device nothing is computed, and how many columns hold outliers, which is known from data only, is taken to be none. On tensors
    with data, of the CPU, its own operators fill what is made here.
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
            is_any = outliers.any()
            if not values.is_meta and is_any:
                columns = torch.argwhere(outliers.any(dim=0)).view(-1)
            else:
                columns = torch.empty(0, dtype=torch.int64, device=values.device)
            del outliers, is_any
    if not values.is_meta:
        made = torch.ops.bitsandbytes.int8_vectorwise_quant.default(values, threshold)
        rows.copy_(made[0])
        stats.copy_(made[1])
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
    """The product in bytes, and that of the columns which hold outliers beside it."""
    import torch

    if columns is None or not columns.numel():
        with tracer:
            apart = torch.empty(0, dtype=a.dtype, device=a.device)
        return _product(tracer, quantized, weight, row_scales, scales, bias=bias, dtype=a.dtype), apart
    with tracer:
        apart = a[:, columns].contiguous()
        unpacked = torch.ops.bitsandbytes.int8_vectorwise_dequant.default(weight[:, columns].contiguous(), scales)
        beside = unpacked.to(a.dtype).t()
        del unpacked
    product = _product(tracer, quantized, weight, row_scales, scales, bias=bias, dtype=a.dtype)
    with tracer:
        return product.addmm(apart, beside), apart


def _product(
    tracer: Tracer, a: Any, weight: Any, row_scales: Any, scales: Any, bias: Any = None, dtype: Any = None
) -> Any:
    """Sums of 32 bits, then halves, to which a bias of another type is added, then the type that was asked for."""
    import torch

    operators = torch.ops.bitsandbytes
    with tracer:
        sums = torch.empty((*a.shape[:-1], weight.shape[0]), dtype=torch.int32, device=a.device)
        if a.shape[-1] % _SLOWEST_PRODUCT:  # cuBLASLt takes no such rows
            sums.copy_(torch.matmul(a.float(), weight.float().t()).to(torch.int32))
        halves = torch.empty_like(sums, dtype=torch.float16)
    if not a.is_meta:
        sums.copy_(operators.int8_linear_matmul.default(a, weight))
        halves.copy_(operators.int8_mm_dequant.default(sums, row_scales, scales, dtype=torch.float16))
    with tracer:
        if bias is not None:
            halves.add_(bias)
        return halves.to(dtype or torch.float16)
