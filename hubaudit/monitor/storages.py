"""Storages of real CPU tensors, from birth to death: what a program's tensors take, whatever the processor's kernels take beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubaudit.exact.device import NO_WORKSPACES
from hubaudit.exact.events import Alloc, Free
from hubaudit.exact.replay import replay
from hubaudit.exact.tracer import Tracer
from hubaudit.monitor.process import resident_bytes
from hubaudit.monitor.reading import Line, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.exact.events import Event, Trace
    from hubaudit.exact.replay import Replay

MEASURES = (
    "bytes of the distinct storages of CPU tensors that operators returned, while each lives; not what kernels take inside an operator, "
    "nor tensors of before or of other processes"
)
_DRAWN = "storages of CPU tensors; reserved: what CUDA's caching allocator would hold for the same sequence"


class CpuStorages:
    """Counts live storages. Where nothing holds a tensor any more, its storage is gone at once: a leak is what somebody still holds."""

    device = "cpu"
    measures = MEASURES

    def __init__(self) -> None:
        self.tracer = Tracer("cpu")
        self._sizes: dict[int, int] = {}
        self._read_to = 0
        self._allocated = 0

    def start(self) -> None:
        """Watch every operator of this thread."""
        self.tracer.__enter__()

    def stop(self) -> None:
        """Watch no longer."""
        self.tracer.__exit__(None, None, None)

    def read(self, label: str) -> Reading:
        """Live bytes now, and at most since the last reading."""
        peak = self._allocated
        for event in self.tracer.events[self._read_to :]:
            self._count(event)
            peak = max(peak, self._allocated)
        self.tracer.mark(label)
        self._read_to = len(self.tracer.events)
        return Reading(self._allocated, peak, None, None, resident_bytes())

    def _count(self, event: Event) -> None:
        if isinstance(event, Alloc):
            self._sizes[event.id] = event.bytes
            self._allocated += event.bytes
        elif isinstance(event, Free):
            self._allocated -= self._sizes.pop(event.id, 0)

    def hold(self, tensors: Iterable[Any], component: str) -> None:
        """Count tensors of before the start too, and say what they are."""
        self.tracer.hold(tensors, component)

    def trace(self) -> Trace:
        """The events up to the last snapshot."""
        return self.tracer.trace()

    def replayed(self) -> Replay:
        """The same sequence of storages through CUDA's caching allocator: rounded as it rounds, and what it would reserve."""
        return replay(self.trace(), NO_WORKSPACES, with_timeline=True)

    def line(self) -> Line:
        """All events, replayed."""
        return Line(self.replayed(), self.trace(), _DRAWN)
