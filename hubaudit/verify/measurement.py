"""What a measured run is: its phases, and each figure beside those by formula and by exact mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.types import Subject, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPhase:
    """A stretch of the run, in bytes: at its end, and the largest within it; the process's own bytes where the system told them."""

    name: str
    allocated_bytes: int
    peak_allocated_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    process_bytes: int | None
    exact_peak_allocated_bytes: int | None = None
    exact_peak_reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure three times, in bytes; ``None`` where a side has none."""

    id: str
    measured_bytes: int | None
    formula_bytes: int | None
    exact_bytes: int | None

    @property
    def formula_error(self) -> float | None:
        """By how much the formula is off, in percent of what was measured."""
        return percent(self.formula_bytes, self.measured_bytes)

    @property
    def exact_error(self) -> float | None:
        """By how much exact mode is off, in percent of what was measured."""
        return percent(self.exact_bytes, self.measured_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Bytes of the cache at the end of generation, and those of them that stand for tokens seen; ``None`` where that cannot be told."""

    held_bytes: int
    used_bytes: int | None
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run, measured. ``measures`` says in words what the figures are, ``environment`` on what they were taken.

    ``exact_reason`` says why there are no exact figures, ``formula_lacks`` what the estimate leaves out and names. ``rests`` are bytes
    allocated after each time the workload ran.
    """

    subject: Subject
    config: Mapping[str, Any]
    workload: Workload
    device: str
    weights: str
    measures: str
    environment: Mapping[str, Any]
    phases: tuple[MeasuredPhase, ...]
    figures: tuple[Figure, ...]
    cache: CacheUse | None
    rests: tuple[int, ...]
    peak_resident_bytes: int | None
    formula_lacks: tuple[str, ...] = ()
    exact_reason: str | None = None

    def figure(self, name: str) -> Figure | None:
        """The figure of this id."""
        return next((one for one in self.figures if one.id == name), None)

    @property
    def leak_bytes(self) -> int | None:
        """The smallest growth from one repetition to the next where each grew, 0 where one did not; ``None``: too few to tell."""
        growths = [later - earlier for earlier, later in zip(self.rests[1:], self.rests[2:], strict=False)]
        if not growths:
            return None
        return max(min(growths), 0)


def percent(value: int | None, measured: int | None) -> float | None:
    """How far ``value`` is from ``measured``, in percent of the latter."""
    return None if value is None or not measured else 100 * (value / measured - 1)
