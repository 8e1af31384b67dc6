"""The model of PyTorch's allocator against what the real one answered, and the laws it keeps."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.exact.allocator import CachingAllocator, OutOfDeviceMemoryError
from hubaudit.exact.settings import AllocatorSettings, parse_settings

_STREAMS = Path(__file__).parents[2] / "fixtures" / "allocator" / "streams.json.gz"
_RECORDED = json.loads(gzip.decompress(_STREAMS.read_bytes()))["cases"]
_MIB = 2**20


@pytest.mark.parametrize(
    "case", _RECORDED, ids=[f"{case['conf'] or 'default'} {case['capacity_bytes']}" for case in _RECORDED]
)
def test_answers_are_those_of_the_real_allocator(case: dict[str, Any]) -> None:
    """After every request of a recorded stream, allocated and reserved bytes equal torch 2.13's, and so do the refusals."""
    allocator = CachingAllocator(parse_settings(case["conf"]), case["capacity_bytes"])
    blocks: dict[int, Any] = {}
    asked = 0
    for at, (step, answer) in enumerate(zip(case["steps"], case["answers"], strict=True)):
        got: list[int] | None
        try:
            if step > 0:
                asked += 1
                blocks[asked] = allocator.malloc(step)
            elif step < 0:
                allocator.free(blocks.pop(-step, None))
            else:
                allocator.empty_cache()
            got = [allocator.allocated_bytes, allocator.reserved_bytes]
        except OutOfDeviceMemoryError:
            got = None
        assert got == answer, f"request {at}: {step}"


def test_the_recorded_streams_reach_every_corner() -> None:
    """Streams without refusals, splits that stay and emptied caches would prove little."""
    assert sum(case["answers"].count(None) for case in _RECORDED) > 20
    assert sum(case["steps"].count(0) for case in _RECORDED) > 20
    assert len({case["conf"] for case in _RECORDED}) >= 10


_SIZES = st.one_of(st.integers(1, 4096), st.integers(4096, 2 * _MIB), st.integers(_MIB, 64 * _MIB))
_STEPS = st.lists(st.tuples(st.sampled_from(("ask", "free", "free")), _SIZES), max_size=60)


@given(steps=_STEPS, expandable=st.booleans(), capacity=st.sampled_from((None, 200 * _MIB)))
@settings(deadline=None, max_examples=80)
def test_memory_is_conserved(steps: list[tuple[str, int]], expandable: bool, capacity: int | None) -> None:
    """Live requests are covered, nothing is allocated that is not reserved, the capacity holds, and all comes back in the end."""
    allocator = CachingAllocator(AllocatorSettings(expandable_segments=expandable), capacity)
    live: list[tuple[Any, int]] = []
    for word, size in steps:
        if word == "free" and live:
            allocator.free(live.pop(size % len(live))[0])
        else:
            try:
                live.append((allocator.malloc(size), size))
            except OutOfDeviceMemoryError:
                assert capacity is not None
        assert sum(asked for _, asked in live) <= allocator.allocated_bytes <= allocator.reserved_bytes
        assert capacity is None or allocator.reserved_bytes <= capacity
        spans = sorted((block.address, block.address + block.size_bytes) for block, _ in live)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    for block, _ in live:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 0)


def test_a_request_for_nothing_takes_nothing() -> None:
    """As in torch, a tensor without elements has no block."""
    allocator = CachingAllocator()
    assert allocator.malloc(0) is None
    allocator.free(None)
    assert allocator.reserved_bytes == 0


def test_peaks_start_anew_where_they_are_reset() -> None:
    """After a reset, the peaks are those since then."""
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * _MIB))
    allocator.reset_peaks()
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (0, 30 * _MIB)
