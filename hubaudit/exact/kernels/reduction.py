"""The buffer that a reduction over many elements shares between thread blocks.

The arithmetic is that of ``setReduceConfig`` in aten/src/ATen/native/cuda/Reduce.cuh of torch 2.13: how many threads and blocks a
reduction is spread over, which is by the shape, the strides and the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hubaudit.exact.device import Device

_WARP = 32
_MOST_THREADS = 512
_VECTOR = 4
_LEAST_FOR_VECTOR = 128
_ENOUGH_PER_THREAD = 16
_MANY_PER_THREAD = 256
_SEMAPHORE_BYTES = 4


class _Dim(NamedTuple):
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """The reduced and the kept dimensions, innermost first, neighbours joined."""

    reduced: list[_Dim]
    kept: list[_Dim]

    @property
    def outputs(self) -> int:
        """How many results there are."""
        count = 1
        for dim in self.kept:
            count *= dim.size
        return count

    @property
    def is_inner(self) -> bool:
        """Whether the reduction runs along the fastest dimension."""
        return not self.kept or self.reduced[0].stride < self.kept[0].stride


def shared_buffer(
    shape: Sequence[int], strides: Sequence[int], dims: Iterable[int] | None, value_bytes: int, device: Device
) -> tuple[int, ...]:
    """Bytes of the buffer and of its semaphores; empty where one block of threads does each result.

    Args:
        shape: of what is reduced.
        strides: of it, in elements.
        dims: the dimensions that are reduced; ``None`` or empty for all.
        value_bytes: of one intermediate value.
        device: how many threads there are to use.
    """
    elements = _product(shape)
    if elements == 0:
        return ()
    layout = _layout(shape, strides, dims)
    if not layout.reduced:
        return ()
    return _spread(layout, elements // layout.outputs, value_bytes, device)


def _product(sizes: Iterable[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _layout(shape: Sequence[int], strides: Sequence[int], dims: Iterable[int] | None) -> _Layout:
    chosen = {dim % len(shape) for dim in dims or ()} or set(range(len(shape)))
    both: tuple[list[_Dim], list[_Dim]] = ([], [])
    for at, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if size != 1:
            both[at not in chosen].append(_Dim(size, stride))
    reduced, kept = (_joined(sorted(part, key=lambda dim: dim.stride)) for part in both)
    return _Layout(reduced, kept)


def _joined(dims: list[_Dim]) -> list[_Dim]:
    joined: list[_Dim] = []
    for dim in dims:
        if joined and joined[-1].size * joined[-1].stride == dim.stride:
            joined[-1] = _Dim(joined[-1].size * dim.size, joined[-1].stride)
        else:
            joined.append(dim)
    return joined


def _spread(layout: _Layout, inputs: int, value_bytes: int, device: Device) -> tuple[int, ...]:
    """The launch that torch would choose, and what its blocks share."""
    width, vector = _first_dimensions(layout, inputs)
    threads_x, threads_y = _block(width, layout.outputs if layout.is_inner else inputs, _MOST_THREADS // vector)
    per_input, per_output = (threads_x, 1) if layout.is_inner else (1, threads_x)
    is_shared_by_rows = _up(inputs, per_input) >= min(threads_y * _ENOUGH_PER_THREAD, _MANY_PER_THREAD)
    if is_shared_by_rows:
        per_input *= threads_y
    else:
        per_output *= threads_y
    blocks = _up(layout.outputs // vector, per_output)
    values = _up(inputs, per_input)
    target = device.processors * (device.threads_per_processor // (threads_x * threads_y))
    if not is_shared_by_rows or values < _MANY_PER_THREAD or blocks > target:
        return ()
    share = max(min(_up(target, blocks), _up(values, _ENOUGH_PER_THREAD)), _up(values, _MANY_PER_THREAD))
    if share <= 1:
        return ()
    buffer_bytes = value_bytes * layout.outputs * share
    return (buffer_bytes if layout.is_inner else buffer_bytes * threads_x * vector, _SEMAPHORE_BYTES * blocks)


def _first_dimensions(layout: _Layout, inputs: int) -> tuple[int, int]:
    """How long the dimension is that a row of threads walks, and how many results one thread makes at once."""
    if layout.is_inner:
        is_vector = layout.reduced[0].stride == 1 and not layout.kept and len(layout.reduced) == 1
        return (inputs // _VECTOR if is_vector and inputs >= _LEAST_FOR_VECTOR else inputs), 1
    if layout.kept[0].stride != 1:
        return layout.outputs, 1
    vector = _VECTOR
    for step in (layout.kept[0].size, *(dim.stride for dim in (*layout.reduced, *layout.kept[1:]))):
        while step % vector:
            vector //= 2
    return layout.outputs // vector, vector


def _block(width: int, height: int, most: int) -> tuple[int, int]:
    """Threads of a block along both dimensions."""
    wide, high = (_power_below(size) if size < most else most for size in (width, height))
    threads_x = min(wide, _WARP)
    threads_y = min(high, most // threads_x)
    return min(wide, most // threads_y), threads_y


def _power_below(number: int) -> int:
    return 1 << (max(1, number).bit_length() - 1)


def _up(number: int, parts: int) -> int:
    return -(-number // parts)
