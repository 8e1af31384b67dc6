"""The monitor without torch: snapshots, differences, leaks, JSON, the picture, and the allocator's history as torch writes it."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from hubaudit.errors import UsageError
from hubaudit.exact.device import blas_policy, device_of_capability
from hubaudit.exact.events import Mark, from_rows
from hubaudit.exact.replay import replay
from hubaudit.exact.snapshot import to_pickle
from hubaudit.monitor import MemoryMonitor, instruments
from hubaudit.monitor.cuda_history import Held, line_of_history
from hubaudit.monitor.instruments import ProcessMemory
from hubaudit.monitor.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIXTURE = Path(__file__).parents[2] / "fixtures" / "exact" / "twelve_linears.json.gz"


class _Told(ProcessMemory):
    """An instrument that reads the sizes it was given."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self._sizes: Iterator[int] = iter(sizes)

    def read(self, label: str) -> Reading:
        size = next(self._sizes)
        return Reading(size, size + 1, None, None, None)


def _watched(monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> MemoryMonitor:
    monkeypatch.setattr(instruments, "ProcessMemory", lambda: _Told(sizes))
    return MemoryMonitor("process")


def test_resident_memory_sees_what_a_script_takes() -> None:
    """Forty million bytes that are written to are in the difference."""
    with MemoryMonitor("process") as monitor:
        data = bytearray(b"x" * 40_000_000)
        monitor.snapshot("data")
    assert len(data) == 40_000_000
    assert 39_000_000 <= monitor.difference("start", "data") < 90_000_000
    assert [one.label for one in monitor.snapshots] == ["start", "data", "end"]


def test_what_grows_every_time_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest growth is told; the first time is a warm-up."""
    with _watched(monkeypatch, [0, 50, 60, 75, 85, 85]) as monitor:
        for _ in range(4):
            monitor.snapshot("step")
    (leak,) = monitor.leaks()
    assert (leak.label, leak.times, leak.bytes_each_time, leak.total_bytes) == ("step", 2, 10, 25)


@pytest.mark.parametrize("sizes", [[50, 60, 60, 60], [50, 60, 70, 65], [50, 60]])
def test_what_comes_to_rest_does_not(monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> None:
    """One time without growth, or too few times to tell, is no leak."""
    with _watched(monkeypatch, [0, *sizes, 0]) as monitor:
        for _ in sizes:
            monitor.snapshot("step")
    assert monitor.leaks() == ()


def test_json_holds_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes; unknown ones as null."""
    with _watched(monkeypatch, [5, 7, 6]) as monitor:
        monitor.snapshot("a")
    told = json.loads(monitor.to_json())
    assert told["device"] == "process"
    assert told["snapshots"][1] == {
        "label": "a",
        "allocated_bytes": 7,
        "peak_allocated_bytes": 8,
        "reserved_bytes": None,
        "peak_reserved_bytes": None,
        "process_bytes": None,
    }


def test_the_table_is_narrow_and_says_what_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a snapshot with its change."""
    with _watched(monkeypatch, [0, 3 * 2**20, 2**20]) as monitor:
        monitor.snapshot("load")
    lines = monitor.table().splitlines()
    assert lines[2].split() == ["load", "3.00", "MiB", "+3.00", "MiB", "3.00", "MiB"]
    assert lines[3].split()[3:5] == ["-2.00", "MiB"]
    assert lines[-1] == f"({monitor.measures})"


def test_the_picture_marks_every_snapshot(tmp_path: Path) -> None:
    """Well-formed, with the labels; other kinds of files are refused."""
    with MemoryMonitor("process") as monitor:
        monitor.snapshot("loaded")
    monitor.plot(tmp_path / "a.svg", "mine")
    words = ["".join(element.itertext()) for element in ET.parse(tmp_path / "a.svg").getroot()]  # noqa: S314 - our own text
    assert {"mine", "process"} <= set(words)
    with pytest.raises(UsageError, match=r"\.svg or \.html"):
        monitor.plot(tmp_path / "a.png")


def test_mistakes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown device, an unknown name, a snapshot outside; and no torch, with the way to it."""
    with pytest.raises(UsageError, match="cannot be watched"):
        MemoryMonitor("tpu")
    monitor = MemoryMonitor("process")
    with pytest.raises(UsageError, match="between"):
        monitor.snapshot("x")
    with monitor, pytest.raises(UsageError, match="no snapshot is called `y`"):
        monitor.difference("start", "y")
    monkeypatch.setattr(instruments, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="needs torch") as raised:
        MemoryMonitor("cpu")
    assert "pip install" in raised.value.hint
    assert MemoryMonitor().device == "process"


def test_the_allocators_history_is_drawn_as_a_replay_is() -> None:
    """A snapshot in torch's form, read back: the same peak, the same components at it, the same sizes at every moment."""
    trace = from_rows(json.loads(gzip.decompress(_FIXTURE.read_bytes()))["foreach"])
    replayed = replay(trace, blas_policy("2.13", device_of_capability("8.0")), with_timeline=True)
    history: list[dict[str, Any]] = pickle.loads(to_pickle(replayed, trace))["device_traces"][0]  # noqa: S301 - ours
    held = [
        Held(entry["addr"], entry["time_us"], entry["frames"][0]["name"])
        for entry in history
        if entry["action"] == "alloc"
    ]
    ends = [(at, event.label) for at, event in enumerate(trace.events) if isinstance(event, Mark)]
    line = line_of_history(history, held, ends)
    assert line.replayed.peak_allocated_bytes == replayed.peak_allocated_bytes
    assert line.replayed.at_peak == replayed.at_peak
    assert [one.by_component for one in line.replayed.timeline] == [one.by_component for one in replayed.timeline]
    assert [event.label for event in line.trace.events if isinstance(event, Mark)] == [label for _, label in ends]


def test_segments_are_what_is_reserved() -> None:
    """Reserved bytes follow segments, allocated ones blocks; unknown entries change nothing."""
    entries = [("segment_alloc", 0, 2 << 20), ("alloc", 0, 512), ("snapshot", 0, 0), ("free_completed", 0, 512)]
    history = [
        {"action": action, "addr": address, "size": size, "time_us": at}
        for at, (action, address, size) in enumerate(entries)
    ]
    line = line_of_history(history, (), ())
    assert [(sum(one.by_component.values()), one.reserved_bytes) for one in line.replayed.timeline] == [
        (512, 2 << 20),
        (0, 2 << 20),
    ]
