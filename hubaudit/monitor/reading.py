"""What every instrument answers: bytes at a moment, and a line over the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.exact.events import Trace
    from hubaudit.exact.replay import Replay


class Reading(NamedTuple):
    """Bytes at a moment; peaks are those since the reading before. ``None``: the instrument has no such figure."""

    allocated_bytes: int
    peak_allocated_bytes: int
    reserved_bytes: int | None
    peak_reserved_bytes: int | None
    process_bytes: int | None


class Line(NamedTuple):
    """A run as exact mode's picture needs it: its moments, the events that they count, and what is drawn."""

    replayed: Replay
    trace: Trace
    label: str


class Instrument(Protocol):
    """One way to read memory, between ``start`` and ``stop``."""

    device: str
    measures: str

    def start(self) -> None:
        """Begin to watch."""

    def stop(self) -> None:
        """Watch no longer."""

    def read(self, label: str) -> Reading:
        """The figures now, at the end of the phase ``label``."""

    def hold(self, tensors: Iterable[Any], component: str) -> None:
        """Say what tensors are, for the picture."""

    def line(self) -> Line:
        """All that was seen, for the picture."""
