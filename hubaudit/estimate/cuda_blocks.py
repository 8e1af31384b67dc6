"""What torch's CUDA allocator hands out beyond the bytes of tensors: blocks of 512 bytes, and remainders too small to be cut off."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.component import component, given
from hubaudit.facts.built import is_built_so
from hubaudit.facts.loading import converts, kept_in_float32, loaded_groups, names_kept_in_float32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
_FLOAT_BYTES = 4
BLOCKS_SOURCE = (
    "pytorch 2.13.0 c10/cuda/CUDACachingAllocator.cpp, round_size and should_split: blocks of 512 B; a remainder of 1 MiB or less of a block for more "
    "than 1 MiB stays with its tensor and counts as allocated"
)
_ONE_BY_ONE = "tensors moved to the device one by one, as model.to() does"
_OR_IN_ONE_PIECE = (
    "; lower end: all laid into one block, as device_map does (transformers 5.23.0 caching_allocator_warmup)"
)


class Run(NamedTuple):
    """``number`` tensors of so many bytes each; ``in_layers``: numbered, one for a layer or more; ``is_fused``: those of a layer are one tensor."""

    size_bytes: int
    number: int
    in_layers: bool
    is_fused: bool


def block_remainders(facts: ModelFacts, dtype: str, *, pool_is_warmed: bool) -> Component | None:
    """Bytes that the allocator counts for the weights beyond their own, which are loaded in ``dtype``; ``None`` where no tensors are known.

    Each tensor asks for a segment where none has room. ``pool_is_warmed``: where transformers chooses the device, it first asks for all of them in one
    piece, which every block is then cut out of: the lower end.
    """
    if not 0 < _tensors(facts) <= _MOST_TENSORS:
        return None
    sizes = tuple(_sizes(facts, dtype))
    own, blocks = sum(sizes), allocated_bytes(sizes)
    inputs = {
        "block_bytes": given(blocks, f"blocks of {len(sizes):,} tensors, one after another"),
        "tensor_bytes": given(own, "the same tensors' own bytes"),
    }
    source = f"{BLOCKS_SOURCE}; {_ONE_BY_ONE}{_OR_IN_ONE_PIECE if pool_is_warmed else ''}"
    made = component(
        "block_remainders", "Fragmentation", "block_bytes - tensor_bytes", inputs, exactness="formula", source=source
    )
    return replace(made, low_bytes=sum(map(rounded, sizes)) - own) if pool_is_warmed else made


def laid_out(runs: Iterable[Run], layers: int) -> Iterator[int]:
    """Bytes of every tensor: what lies outside layers, then layer by layer."""
    within = []
    for run in runs:
        if run.in_layers:
            within.append(run)
        else:
            yield from (run.size_bytes,) * run.number
    layers = min(layers, max((run.number for run in within), default=0))  # a config may say any number
    for layer in range(layers):
        for run in within:
            number = run.number * (layer + 1) // layers - run.number * layer // layers
            yield from (run.size_bytes * number,) if run.is_fused else (run.size_bytes,) * number


def rounded(size_bytes: int) -> int:
    """What a tensor takes where no remainder stays with it."""
    return max(_MIN_BLOCK, -(-size_bytes // _MIN_BLOCK) * _MIN_BLOCK)


def allocated_bytes(sizes: Iterable[int]) -> int:
    """Bytes in use after these requests, none of them given back: the best fitting free block, split where the remainder is worth it."""
    free: tuple[list[int], list[int]] = ([], [])
    total = 0
    for size_bytes in sizes:
        size = rounded(size_bytes)
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


def _tensors(facts: ModelFacts) -> int:
    return len(facts.built) if is_built_so(facts) else sum(group.count for group in loaded_groups(facts))


def _sizes(facts: ModelFacts, dtype: str) -> Iterator[int]:
    """Bytes of the tensors in the order of their modules where that is known, else layer by layer."""
    width = bits_of()[dtype]
    if is_built_so(facts):
        is_float32 = names_kept_in_float32(facts.architecture, dtype)
        for tensor in facts.built:
            elements = prod(tensor.shape)
            yield elements * _FLOAT_BYTES if is_float32(tensor.name) else elements * width // 8
        return
    yield from laid_out(_runs(facts, dtype), max(1, facts.layers.value or 1))


def _runs(facts: ModelFacts, dtype: str) -> Iterator[Run]:
    width, kept = bits_of()[dtype], kept_in_float32(facts.architecture, dtype)
    for group in loaded_groups(facts):
        if group.parameters is None or not group.count:
            continue
        bits = 8 * _FLOAT_BYTES if kept(group) else width
        size = group.parameters // group.count * bits // 8 if converts(group) else group.stored_bytes // group.count
        yield Run(size, group.count, in_layers="*" in group.pattern, is_fused=group.role == "expert")
