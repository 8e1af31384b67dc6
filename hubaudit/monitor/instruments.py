"""What memory can be read with: CUDA's counters, the storages of CPU tensors, or what the operating system says of the process."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hubaudit.errors import UsageError
from hubaudit.monitor.process import peak_resident_bytes, resident_bytes
from hubaudit.monitor.reading import Instrument, Line, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable


_HINT = "pip install 'hubaudit[exact]'"
DEVICES = ("cuda", "cpu", "process")


def instrument_for(device: str | None, *, with_timeline: bool) -> Instrument:
    """The instrument for ``cuda``, ``cpu`` or ``process``; for ``None`` the first of them that this machine has.

    Raises:
        UsageError: the device is not there, or torch is missing.
    """
    if device is None:
        device = _best()
    if device == "process":
        return ProcessMemory()
    if device not in DEVICES:
        raise UsageError(f"memory of `{device}` cannot be watched", hint=f"there are {', '.join(DEVICES)}")
    if find_spec("torch") is None:
        raise UsageError(f"watching memory of {device} needs torch, which is not installed", hint=_HINT)
    if device == "cpu":
        return import_module("hubaudit.monitor.storages").CpuStorages()  # type: ignore[no-any-return]
    if not import_module("torch").cuda.is_available():
        raise UsageError("torch sees no CUDA device here", hint="device='cpu' watches the storages of CPU tensors")
    return import_module("hubaudit.monitor.cuda").CudaCounters(with_timeline=with_timeline)  # type: ignore[no-any-return]


def _best() -> str:
    if find_spec("torch") is None:
        return "process"
    return "cuda" if import_module("torch").cuda.is_available() else "cpu"


class ProcessMemory:
    """Resident memory of the process: all that a script without torch can know. It holds what libraries cache, too."""

    device = "process"
    measures = "resident memory of the process, with its libraries and what they cache"

    def __init__(self) -> None:
        self._seen: list[tuple[str, int]] = []
        self._peak: int | None = None

    def start(self) -> None:
        """Note the peak so far."""
        self._peak = peak_resident_bytes()

    def stop(self) -> None:
        """Nothing is to be undone."""

    def read(self, label: str) -> Reading:
        """Resident bytes; the peak since the last reading is known only where it is the process's own peak."""
        now = resident_bytes()
        if now is None:
            raise UsageError("this system does not say how much memory a process has")
        peak = peak_resident_bytes() or now
        rose = self._peak is None or peak > self._peak
        self._peak = peak
        self._seen.append((label, now))
        return Reading(now, max(now, peak) if rose else now, None, None, now)

    def hold(self, tensors: Iterable[Any], component: str) -> None:
        """The system does not know tensors."""

    def line(self) -> Line:
        """One point a snapshot: between them nothing is known."""
        from hubaudit.exact.events import Mark, Trace
        from hubaudit.exact.replay import Moment, Replay

        moments = tuple(
            Moment(event=at, by_component={"process": size}, reserved_bytes=size)
            for at, (_, size) in enumerate(self._seen)
        )
        peak = max((size for _, size in self._seen), default=0)
        made = Replay(
            phases=(),
            peak_allocated_bytes=peak,
            peak_reserved_bytes=peak,
            at_peak={"process": peak},
            peak_phase=max(self._seen, key=lambda one: one[1])[0] if self._seen else None,
            timeline=moments,
            requests=(),
            retries=0,
        )
        trace = Trace(tuple(Mark(label) for label, _ in self._seen), {})
        return Line(made, trace, "resident memory at each snapshot; between them nothing is known")
