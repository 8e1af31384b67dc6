"""Scratch memory of an embedding's gradient, which sorts tokens by row where there are many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hubaudit.exact.device import Device

_SORTED_FROM = 3072
_ROWS_PER_THREAD = 10
_INDEX_BYTES = 8
_SUM_BYTES = 4
_DIGIT_BITS = 8
_SORT_TILE = 3840
_FEW_ROWS_PER_PROCESSOR = 4
_TOKENS_PER_FEW = 30


def sorting(call: dict[str, Any], device: Device) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is held from before the result is made, and what is taken on the way to it: tokens sorted by row.

    Source: embedding_dense_backward_cuda in aten/src/ATen/native/cuda/Embedding.cu; the sorter's own memory was found by asking the binary of
    torch 2.13 for it, as it is a library's affair.
    """
    given = (call["grad_output"], call["indices"])
    copied = tuple(one.numel() * one.element_size() for one in given if not one.is_contiguous())
    tokens, rows = call["indices"].numel(), call["num_weights"]
    if tokens <= _SORTED_FROM:
        return copied, ()
    one = _INDEX_BYTES * tokens
    return (*copied, one, one), (one, sorter_bytes(tokens, rows))


def summing(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """While the sorted tokens' gradients are summed in parts of ten and fewer, and the parts into rows.

    Source: embedding_backward_cuda_kernel in EmbeddingBackwardKernel.cu. When a table has so few rows that each of them is summed at once was
    found by asking the binary.
    """
    tokens, rows = call["indices"].numel(), call["num_weights"]
    if tokens <= _SORTED_FROM:
        return ()
    width = call["grad_output"].shape[-1]
    segments = min(tokens, rows)
    parts = tokens // _ROWS_PER_THREAD + segments
    is_few = rows < _FEW_ROWS_PER_PROCESSOR * device.processors and tokens >= _TOKENS_PER_FEW * rows
    sums = (_INDEX_BYTES * parts, _SUM_BYTES * rows * width) if is_few else (_SUM_BYTES * parts * width,)
    by_row = (_INDEX_BYTES * tokens, 8, _INDEX_BYTES * segments, _INDEX_BYTES * segments, 8, _INDEX_BYTES * parts)
    return (*by_row, *sums)


def sorter_bytes(tokens: int, rows: int) -> int:
    """What the radix sort takes: counts of each digit and of each tile, and from two digits on a second copy of keys and values."""
    digits = -(-rows.bit_length() // _DIGIT_BITS)
    copies = 2 * _INDEX_BYTES * tokens if digits > 1 else 0
    return copies + digits * 2048 + 1024 * -(-tokens // _SORT_TILE) + 511
