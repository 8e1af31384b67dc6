"""What torch's CUDA allocator gives for weights beyond their bytes: blocks of 512 bytes, and rests too small to be split off."""

from __future__ import annotations

from bisect import bisect_left, insort
from math import prod
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.component import component, given
from hubaudit.facts.built import is_built_so
from hubaudit.facts.loading import converts, loaded_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.types import Component, ModelFacts

#: PyTorch 2.13.0, c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp; the same figures since 1.0.
_MIN_BLOCK = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_MIN_LARGE = 10 << 20
_LARGE_SEGMENT = 20 << 20
_ROUND_LARGE = 2 << 20
#: More tensors than any model has; a file may declare as many as it likes.
_MOST_TENSORS = 200_000
_SOURCE = "PyTorch c10/cuda/CUDACachingAllocator.cpp: blocks of 512 B; in the pool of large blocks a rest of at most 1 MiB stays with its block"


def block_rounding(facts: ModelFacts, dtype: str, *, pool_is_warmed: bool) -> Component | None:
    """Bytes that the allocator counts for the weights beyond their own, which are loaded in ``dtype``; ``None`` where no tensors are known.

    Where the pool was warmed with one request for all, every block is cut out of it; else each tensor asks for a segment where none has room.
    """
    runs = tuple(_tensor_sizes(facts, dtype))
    tensors = sum(count for _, count in runs)
    if not 0 < tensors <= _MOST_TENSORS:
        return None
    if pool_is_warmed:
        blocks = sum(count * _rounded(size) for size, count in runs)
    else:
        blocks = _allocated(size for size, count in runs for _ in range(count))
    inputs = {
        "block_bytes": given(blocks, f"blocks of {tensors:,} tensors, one after another"),
        "weights_bytes": given(sum(count * size for size, count in runs), "the same tensors' own bytes"),
    }
    formula = "block_bytes - weights_bytes"
    return component("fragmentation", "Fragmentation", formula, inputs, exactness="formula", source=_SOURCE)


def _tensor_sizes(facts: ModelFacts, dtype: str) -> Iterable[tuple[int, int]]:
    """The bytes of a tensor, and how many of that size follow one another."""
    width = bits_of()[dtype]
    if is_built_so(facts):
        yield from ((prod(tensor.shape) * width // 8, 1) for tensor in facts.built)
        return
    for group in loaded_groups(facts):
        if group.parameters is None or not group.count:
            continue
        size = group.parameters // group.count * width // 8 if converts(group) else group.stored_bytes // group.count
        yield size, group.count


def _rounded(size_bytes: int) -> int:
    return max(_MIN_BLOCK, -(-size_bytes // _MIN_BLOCK) * _MIN_BLOCK)


def _allocated(sizes: Iterable[int]) -> int:
    """Bytes in use after these requests, none of them given back: the best fitting free block, split where the rest is worth it."""
    free: tuple[list[int], list[int]] = ([], [])
    total = 0
    for size_bytes in sizes:
        size = _rounded(size_bytes)
        is_large = size > _SMALL
        pool = free[is_large]
        at = bisect_left(pool, size)
        block = pool.pop(at) if at < len(pool) else _segment(size)
        rest = block - size
        if rest > _SMALL if is_large else rest >= _MIN_BLOCK:
            insort(pool, rest)
            block = size
        total += block
    return total


def _segment(size: int) -> int:
    if size <= _SMALL:
        return _SMALL_SEGMENT
    return _LARGE_SEGMENT if size < _MIN_LARGE else -(-size // _ROUND_LARGE) * _ROUND_LARGE
