"""CUDA's own counters, and for the picture the caching allocator's own history."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from hubaudit.errors import UsageError
from hubaudit.monitor.cuda_history import Held, line_of_history
from hubaudit.monitor.gpu import process_bytes
from hubaudit.monitor.reading import Line, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable

_ENTRIES = 2_000_000
MEASURES = "torch.cuda's counters of the caching allocator; process: what the driver counts for this process, with the CUDA context"


class CudaCounters:
    """Reads ``torch.cuda.memory_*``. Each reading starts the peaks anew, also for others in this process who read them."""

    device = "cuda"
    measures = MEASURES

    def __init__(self, *, with_timeline: bool) -> None:
        self._with_timeline = with_timeline
        self._held: list[Held] = []
        self._phases: list[tuple[int, str]] = []

    def start(self) -> None:
        """Start the peaks, and the allocator's history where a picture is wanted."""
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()
        if self._with_timeline:
            torch.cuda.memory._record_memory_history(max_entries=_ENTRIES, context=None)

    def stop(self) -> None:
        """Keep the history, and record no more of it."""
        if self._with_timeline:
            self._history = self._read_history()
            torch.cuda.memory._record_memory_history(enabled=None)

    def read(self, label: str) -> Reading:
        """The counters, once all kernels that were asked for have run."""
        torch.cuda.synchronize()
        cuda = torch.cuda
        reading = Reading(
            cuda.memory_allocated(),
            cuda.max_memory_allocated(),
            cuda.memory_reserved(),
            cuda.max_memory_reserved(),
            process_bytes(torch.cuda.current_device()),
        )
        cuda.reset_peak_memory_stats()
        self._phases.append((_microseconds(), label))
        return reading

    def hold(self, tensors: Iterable[Any], component: str) -> None:
        """Say what tensors are, by where they lie now."""
        now = _microseconds()
        for tensor in tensors:
            if tensor.is_cuda:
                self._held.append(Held(tensor.untyped_storage().data_ptr(), now, component))

    def line(self) -> Line:
        """The allocator's history.

        Raises:
            UsageError: it was not recorded.
        """
        if not self._with_timeline:
            raise UsageError("the allocator's history was not recorded", hint="MemoryMonitor(timeline=True) records it")
        history = getattr(self, "_history", None)
        return line_of_history(self._read_history() if history is None else history, self._held, self._phases)

    def _read_history(self) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        return made


def _microseconds() -> int:
    return time.time_ns() // 1000
