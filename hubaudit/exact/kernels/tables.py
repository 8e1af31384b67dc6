"""Which operator takes which scratch memory, or makes a storage that its tensor does not show, on CUDA."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from hubaudit.exact.kernels.attention import (
    efficient_backward,
    efficient_forward,
    flash_backward,
    flash_backward_copies,
    flash_forward,
)
from hubaudit.exact.kernels.embedding import sorter_bytes, sorting, summing
from hubaudit.exact.kernels.reduction import shared_buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.exact.device import Device

    Rule = Callable[[dict[str, Any], Device], tuple[int, ...]]
    First = Callable[[dict[str, Any], Device], tuple[tuple[int, ...], tuple[int, ...]]]

aten = torch.ops.aten
_NORM_CHUNK = 65536
_INDEX_VALUE_BYTES = 16

#: Products by cuBLAS, and by cuBLASLt, which adds a bias as it goes.
BLAS_LIBRARY: dict[Any, str] = dict.fromkeys(
    (
        aten.mm.default,
        aten.bmm.default,
        aten.baddbmm.default,
        aten.mv.default,
        aten.addmv.default,
        aten.dot.default,
    ),
    "cublas",
) | {aten.addmm.default: "cublaslt"}

#: Outputs in the order in which CUDA's kernel makes them, where it is not that of the results.
OUTPUT_ORDER: dict[Any, tuple[int, ...]] = {aten.native_dropout.default: (1, 0)}

#: Results that lie in the host's memory, or in no memory of their own, on CUDA.
NOT_ON_DEVICE: dict[Any, tuple[int, ...]] = {
    aten._scaled_dot_product_efficient_attention.default: (2, 3),
    aten.log_sigmoid_forward.default: (1,),  # a buffer for the host's kernel, empty on CUDA (Activation.cpp)
}


def storage_bytes(func: Any, call: dict[str, Any]) -> int | None:
    """Bytes of a result's storage where CUDA's kernel makes it larger than the tensor; ``None`` where it does not.

    A reduced mean-squared or smooth-L1 loss is computed into a buffer of the input's size, which is then resized to a scalar and
    keeps its bytes (aten/src/ATen/native/BinaryOps.cpp: mse_loss_out, with a borrowed output).
    """
    if func in FULL_SIZE_LOSSES and call["reduction"] != 0:
        return int(call["self"].numel() * call["self"].element_size())
    return None


FULL_SIZE_LOSSES = {aten.mse_loss.default, aten.smooth_l1_loss.default}


def _squares(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    return (call["self"].numel() * call["self"].element_size(),)


def _running_sum(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """A running sum is taken over a copy of another dtype, and over one in order (ScanKernels.cpp: expect_contiguous)."""
    before, after = call["self"], call["result"]
    copies = int(before.dtype != after.dtype) + int(not before.is_contiguous())
    return (int(after.numel() * after.element_size()),) * copies


def _batched_triangles(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """Two tables of pointers, one for each matrix (BatchLinearAlgebra.cpp: triangular_solve_batched_cublas)."""
    matrices: int = math.prod(call["self"].shape[:-2])
    return (8 * matrices,) * 2 if matrices > 1 else ()


def _safe_softmax(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """Which scores are minus infinity, which rows are so altogether, and a zero for those (_safe_softmax in SoftMax.cpp)."""
    scores, zero = call["self"], call["result"].element_size()
    return (scores.numel(), scores.numel() // max(1, scores.shape[call["dim"]]), zero)


def _summed_by_index(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """To add where an index may occur twice, indices are sorted (Indexing.cu: index_put_with_sort_kernel)."""
    indices = [one for one in call["indices"] if one is not None]
    if not call["accumulate"] or any(one.dtype in (torch.bool, torch.uint8) for one in indices):
        return ()
    count = math.prod(torch.broadcast_shapes(*(one.shape for one in indices)))
    rows = 1
    for size, one in zip(call["self"].shape, call["indices"], strict=False):
        rows *= size if one is not None else 1
    return (8 * count,) * 4 + (sorter_bytes(count, rows),)


def _softmax_product(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """Gradient × output, in full (SoftMax.cu: softmax_backward_cuda_out)."""
    gradient, output = call["grad_output"], call["output"]
    return (gradient.numel() * max(gradient.element_size(), output.element_size()),)


def _reduction(value_bytes: Callable[[Any], int]) -> Rule:
    def rule(call: dict[str, Any], device: Device) -> tuple[int, ...]:
        values = call["self"]
        dims = call.get("dim")
        chosen = (dims,) if isinstance(dims, int) else dims
        return shared_buffer(values.shape, values.stride(), chosen, value_bytes(values), device)

    return rule


def _sum_bytes(values: Any) -> int:
    if values.dtype in (torch.float16, torch.bfloat16, torch.float32):
        return 4
    return 8 if values.dtype in (torch.int32, torch.int64, torch.float64) else int(values.element_size())


def _sum(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """As any reduction; integers and truths are first copied as the sum's type, 16-bit numbers are not (ReduceOpsUtils.h: make_reduction)."""
    before, after = call["self"], call["result"]
    is_copied = before.dtype != after.dtype and not before.dtype.is_floating_point
    copied = (before.numel() * after.element_size(),) if is_copied else ()
    return copied + _reduction(_sum_bytes)(call, device)


def _norms(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """One value for each chunk of the longest tensor, for every tensor (ForeachReduceOp.cu)."""
    tensors = call["self"]
    return (4 * len(tensors) * -(-max(one.numel() for one in tensors) // _NORM_CHUNK),)


_SUMS = (aten.sum.dim_IntList, aten.sum.default)
_MEANS = (
    aten.mean.dim,
    aten.mean.default,
    aten.linalg_vector_norm.default,
)
_EXTREMES = (aten.amax.default, aten.amin.default, aten.max.default, aten.min.default)
_TRUTHS = (aten.all.default, aten.any.default, aten.all.dim, aten.any.dim)

#: What an operator's kernel takes beside its results.
SCRATCH: dict[Any, Rule] = {
    aten.mse_loss.default: _squares,
    aten.embedding_dense_backward.default: summing,
    aten.cumsum.default: _running_sum,
    aten.linalg_solve_triangular.default: _batched_triangles,
    aten._softmax_backward_data.default: _softmax_product,
    aten._safe_softmax.default: _safe_softmax,
    **dict.fromkeys((aten.index_put.default, aten.index_put_.default), _summed_by_index),
    aten._scaled_dot_product_flash_attention.default: flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    aten._scaled_dot_product_efficient_attention.default: efficient_forward,
    aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
    aten._foreach_norm.Scalar: _norms,
    aten.argmax.default: _reduction(lambda values: _INDEX_VALUE_BYTES),
    **dict.fromkeys(_SUMS, _sum),
    **dict.fromkeys(_MEANS, _reduction(_sum_bytes)),
    **dict.fromkeys(_EXTREMES, _reduction(lambda values: int(values.element_size()))),
    **dict.fromkeys(_TRUTHS, _reduction(lambda values: 1)),
}


def _copies(*names: str) -> First:
    """Of those of an operator's arguments that do not lie in order."""

    def rule(call: dict[str, Any], device: Device) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tensors = [call[name] for name in names if call[name] is not None]
        return tuple(one.numel() * one.element_size() for one in tensors if not one.is_contiguous()), ()

    return rule


#: What an operator takes before its results: what is held until it ends, and what is given back before they are made.
FIRST: dict[Any, First] = {
    aten.embedding.default: _copies("indices"),
    aten.embedding_dense_backward.default: sorting,
    aten.convolution.default: _copies("input", "weight"),
    aten.convolution_backward.default: _copies("grad_output", "input", "weight"),
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward_copies,
}

#: Operators whose results are views of one buffer.
ONE_BUFFER = {aten._foreach_norm.Scalar}
