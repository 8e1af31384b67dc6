"""The context manager for people's own scripts: snapshots by name, what lies between them, and what keeps growing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.errors import UsageError
from hubaudit.monitor.instruments import instrument_for
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from hubaudit.monitor.reading import Reading

_VERSION = 1
_ENOUGH = 3
_COLUMNS = ("snapshot", "allocated", "change", "at most", "reserved", "process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Memory at a named moment, in bytes. Peaks are those since the snapshot before; ``None`` is what the instrument does not have."""

    label: str
    allocated_bytes: int
    peak_allocated_bytes: int
    reserved_bytes: int | None
    peak_reserved_bytes: int | None
    process_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Memory that grew from each snapshot of a name to the next: ``bytes_each_time`` is the smallest of these growths."""

    label: str
    times: int
    bytes_each_time: int
    total_bytes: int


class MemoryMonitor:
    """Watches memory while it is entered.

    >>> with MemoryMonitor(device="process") as monitor:
    ...     data = bytearray(1_000_000)
    ...     _ = monitor.snapshot("data")
    >>> monitor.snapshots[0].label
    'start'

    ``device``: ``cuda`` (torch's counters of its caching allocator), ``cpu`` (storages of CPU tensors), ``process`` (resident memory), or
    ``None`` for the first of these that there is. ``timeline`` records the allocator's history on CUDA, which a picture needs; on the CPU
    it is always there. ``measures`` says in words what the figures are.

    Raises:
        UsageError: the device is not there, or torch is missing.
    """

    def __init__(self, device: str | None = None, *, timeline: bool = False) -> None:
        self._instrument = instrument_for(device, with_timeline=timeline)
        self._snapshots: list[Snapshot] = []
        self._is_on = False

    @property
    def device(self) -> str:
        """``cuda``, ``cpu`` or ``process``."""
        return self._instrument.device

    @property
    def measures(self) -> str:
        """What the figures are, in words."""
        return self._instrument.measures

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All of them, in order."""
        return tuple(self._snapshots)

    def __enter__(self) -> Self:
        self._instrument.start()
        self._is_on = True
        self.snapshot("start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.snapshot("end")
        self._is_on = False
        self._instrument.stop()

    def snapshot(self, label: str) -> Snapshot:
        """Read memory now. A name may come again, as in a loop: :meth:`leaks` compares those of one name.

        Raises:
            UsageError: the monitor is not entered.
        """
        if not self._is_on:
            raise UsageError("a MemoryMonitor watches between `with` and its end only")
        reading: Reading = self._instrument.read(label)
        made = Snapshot(label=label, **reading._asdict())
        self._snapshots.append(made)
        return made

    def hold(self, tensors: Iterable[Any], component: str) -> None:
        """Say what tensors are (``weights``, ``kv_cache``, …), for the picture; on the CPU those made before are counted from now on."""
        self._instrument.hold(tensors, component)

    def difference(self, before: str, after: str) -> int:
        """Bytes that were allocated at the last snapshot called ``after`` and not at the last one called ``before``.

        Raises:
            UsageError: there is no snapshot of that name.
        """
        return self._last(after).allocated_bytes - self._last(before).allocated_bytes

    def leaks(self) -> tuple[Leak, ...]:
        """What grew every time, for each name that came at least three times; the first time is a warm-up and does not count.

        Resident memory grows for other reasons too (what the C library keeps): under ``process`` this is a hint, not a proof.
        """
        found: list[Leak] = []
        for label in dict.fromkeys(one.label for one in self._snapshots):
            sizes = [one.allocated_bytes for one in self._snapshots if one.label == label]
            growths = [later - earlier for earlier, later in pairwise(sizes[1:])]
            if len(sizes) >= _ENOUGH and min(growths) > 0:
                found.append(
                    Leak(label=label, times=len(growths), bytes_each_time=min(growths), total_bytes=sum(growths))
                )
        return tuple(found)

    def table(self) -> str:
        """The snapshots for people, one line each, then what leaks."""
        rows = [_COLUMNS, *self._rows()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
        lines = [
            "  ".join(cell.ljust(width) if not at else cell.rjust(width) for at, (cell, width) in enumerate(_cells))
            for _cells in (tuple(zip(row, widths, strict=True)) for row in rows)
        ]
        lines += [
            f"leak? `{leak.label}` grew {leak.times} times, by at least {format_bytes(leak.bytes_each_time)} each"
            for leak in self.leaks()
        ]
        return "\n".join([*(line.rstrip() for line in lines), f"({self.measures})"])

    def to_dict(self) -> dict[str, Any]:
        """All figures, in bytes."""
        return {
            "monitor_version": _VERSION,
            "device": self.device,
            "measures": self.measures,
            "snapshots": [_plain(one) for one in self._snapshots],
            "leaks": [_plain(one) for one in self.leaks()],
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def plot(self, path: str | Path, title: str = "memory over the run") -> None:
        """Draw memory over the run by component into ``path``, an ``.svg`` or ``.html``: the picture that exact mode draws.

        Raises:
            UsageError: another kind of file, one that cannot be written, or a history that was not recorded.
        """
        from hubaudit.exact.timeline import to_html, to_svg

        path = Path(path)
        if path.suffix not in (".svg", ".html"):
            raise UsageError("a timeline is written as .svg or .html, by the file's name")
        line = self._instrument.line()
        draw = to_html if path.suffix == ".html" else to_svg
        try:
            path.write_text(draw(line.replayed, line.trace, title, line.label), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write `{path}`: {error.strerror}") from None

    def _last(self, label: str) -> Snapshot:
        found = [one for one in self._snapshots if one.label == label]
        if not found:
            known = ", ".join(dict.fromkeys(one.label for one in self._snapshots)) or "none yet"
            raise UsageError(f"no snapshot is called `{label}`", hint=f"there are: {known}")
        return found[-1]

    def _rows(self) -> Iterable[tuple[str, ...]]:
        before: int | None = None
        for one in self._snapshots:
            change = 0 if before is None else one.allocated_bytes - before
            before = one.allocated_bytes
            yield (
                one.label,
                format_bytes(one.allocated_bytes),
                f"{'-' if change < 0 else '+'}{format_bytes(abs(change))}" if change else "",
                format_bytes(one.peak_allocated_bytes),
                "" if one.reserved_bytes is None else format_bytes(one.reserved_bytes),
                "" if one.process_bytes is None else format_bytes(one.process_bytes),
            )


def _plain(record: Snapshot | Leak) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}
