"""Which operator takes which scratch memory, or makes a storage that its tensor does not show, on CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hubaudit.exact.kernels.attention import efficient_backward, efficient_forward, flash_backward, flash_forward
from hubaudit.exact.kernels.reduction import shared_buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.exact.device import Device

    Rule = Callable[[dict[str, Any], Device], tuple[int, ...]]

aten = torch.ops.aten
_SORTED_FROM = 3072
_ROWS_PER_THREAD = 10
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
NOT_ON_DEVICE: dict[Any, tuple[int, ...]] = {aten._scaled_dot_product_efficient_attention.default: (2, 3)}


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


def _sorted_embedding(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """Of more than 3072 tokens, the gradients are sorted by row and summed in parts (EmbeddingBackwardKernel.cu)."""
    tokens = call["indices"].numel()
    if tokens <= _SORTED_FROM:
        return ()
    segments = min(tokens, call["num_weights"])
    parts = tokens // _ROWS_PER_THREAD + segments
    width = call["grad_output"].shape[-1]
    return (8 * tokens,) * 3 + (8, 8 * segments, 8 * segments, 8, 8 * parts, 4 * parts * width)


def _cast_before_sum(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """A running sum of another dtype is taken over a copy."""
    before, after = call["self"], call["result"]
    return (after.numel() * after.element_size(),) if before.dtype != after.dtype else ()


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


def _norms(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """One value for each chunk of the longest tensor, for every tensor (ForeachReduceOp.cu)."""
    tensors = call["self"]
    return (4 * len(tensors) * -(-max(one.numel() for one in tensors) // _NORM_CHUNK),)


_SUMS = (
    aten.sum.dim_IntList,
    aten.sum.default,
    aten.mean.dim,
    aten.mean.default,
    aten.linalg_vector_norm.default,
)
_EXTREMES = (aten.amax.default, aten.amin.default, aten.max.default, aten.min.default)
_TRUTHS = (aten.all.default, aten.any.default, aten.all.dim, aten.any.dim)

#: What an operator's kernel takes beside its results.
SCRATCH: dict[Any, Rule] = {
    aten.mse_loss.default: _squares,
    aten.embedding_dense_backward.default: _sorted_embedding,
    aten.cumsum.default: _cast_before_sum,
    aten._softmax_backward_data.default: _softmax_product,
    aten._scaled_dot_product_flash_attention.default: flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    aten._scaled_dot_product_efficient_attention.default: efficient_forward,
    aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
    aten._foreach_norm.Scalar: _norms,
    aten.argmax.default: _reduction(lambda values: _INDEX_VALUE_BYTES),
    **dict.fromkeys(_SUMS, _reduction(_sum_bytes)),
    **dict.fromkeys(_EXTREMES, _reduction(lambda values: int(values.element_size()))),
    **dict.fromkeys(_TRUTHS, _reduction(lambda values: 1)),
}

#: Operators whose results are views of one buffer.
ONE_BUFFER = {aten._foreach_norm.Scalar}
