"""A recorded program, replayed, gives the figures that were published for it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hubaudit.exact.allocator import OutOfDeviceMemoryError
from hubaudit.exact.device import blas_policy, device_named, device_of_capability
from hubaudit.exact.events import Alloc, EmptyCache, Free, Mark, Scratch, Trace, from_rows, to_rows
from hubaudit.exact.replay import fits, replay, smallest_capacity
from hubaudit.exact.settings import AllocatorSettings

_FIXTURE = Path(__file__).parents[2] / "fixtures" / "exact" / "twelve_linears.json.gz"
_TRACES = {name: from_rows(rows) for name, rows in json.loads(gzip.decompress(_FIXTURE.read_bytes())).items()}
_MIB = 2**20
#: Allocated and reserved MB after each stage: the measurement that the starting documents of this project publish (12 × Linear(1024), batch
#: 32, Adam), which is torch 1.x with Adam's loop over parameters.
_PUBLISHED = [(48.30, 62), (49.80, 64), (49.92, 64), (97.97, 104), (194.06, 204)]
#: The same program on torch 2.13.0+cu130 itself, run on the stub driver, at two compute capabilities, with its default Adam.
_OF_THE_BINARY = {
    "8.0": [(48.30, 62), (57.92, 62), (58.05, 64), (114.22, 124), (210.31, 284)],
    "9.0": [(48.30, 62), (81.80, 94), (81.92, 96), (161.97, 168), (258.06, 308)],
}


def _stages(trace: Trace, torch_version: str, capability: str) -> list[tuple[float, float]]:
    policy = blas_policy(torch_version, device_of_capability(capability))
    phases = replay(trace, policy).phases
    return [(round(phase.allocated_bytes / _MIB, 2), phase.reserved_bytes / _MIB) for phase in phases]


def test_twelve_linears_give_the_ten_published_figures() -> None:
    """Allocated and reserved memory after each of five stages, as measured on a GPU."""
    assert _stages(_TRACES["loop"], "1.13", "7.0") == _PUBLISHED


@pytest.mark.parametrize("capability", sorted(_OF_THE_BINARY))
def test_twelve_linears_under_torch_2_13(capability: str) -> None:
    """Newer torch keeps a cuBLAS workspace for each thread and takes all square roots at once: other figures, equally exact."""
    assert _stages(_TRACES["foreach"], "2.13", capability) == _OF_THE_BINARY[capability]


def test_the_parts_at_the_peak_add_up_to_it() -> None:
    """Nothing is counted twice or left out."""
    made = replay(_TRACES["foreach"], blas_policy("2.13", device_of_capability("8.0")), with_timeline=True)
    assert sum(made.at_peak.values()) == made.peak_allocated_bytes
    assert max(sum(moment.by_component.values()) for moment in made.timeline) == made.peak_allocated_bytes
    assert max(moment.reserved_bytes for moment in made.timeline) == made.peak_reserved_bytes
    assert made.peak_phase == "step"


@pytest.mark.parametrize("expandable", [False, True])
def test_the_smallest_capacity_is_enough_and_less_is_not(expandable: bool) -> None:
    """What a program runs in lies between its peaks, and a granule less is refused."""
    trace, policy = _TRACES["foreach"], blas_policy("2.13", device_of_capability("8.0"))
    settings = AllocatorSettings(expandable_segments=expandable)
    whole = replay(trace, policy, settings)
    needed = smallest_capacity(trace, policy, settings)
    assert whole.peak_allocated_bytes <= needed <= whole.peak_reserved_bytes
    assert fits(trace, policy, settings, needed)
    assert not fits(trace, policy, settings, needed - 2 * _MIB)
    with pytest.raises(OutOfDeviceMemoryError):
        replay(trace, policy, settings, needed - 2 * _MIB)


def test_rows_hold_all_of_a_trace() -> None:
    """What is written to a fixture is read back equal."""
    events = (Alloc(0, 7, "aten::mm"), Scratch((3, 4), "sum"), Mark("load"), EmptyCache(), Free(0))
    trace = Trace(events, {0: "weights"})
    assert from_rows(json.loads(json.dumps(to_rows(trace)))) == trace
    for recorded in _TRACES.values():
        assert from_rows(to_rows(recorded)) == recorded


def test_devices_are_found_by_the_names_of_the_catalogue() -> None:
    """The longest row that a name holds; a name that no row stands in has no device."""
    found = device_named("GeForce RTX 4080 SUPER")
    assert found is not None
    assert (found.name, found.capability) == ("RTX 4080", (8, 9))
    assert device_named("TPU v5e") is None
