"""Moments of a run: what is alive together, and which moment is the worst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.types import Estimate, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.types import Component, Omission


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment of a phase and all that is alive then. A phase has several where it is not plain which is its worst."""

    phase: str
    components: tuple[Component, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all that is alive."""
        return sum(part.bytes for part in self.components)


def worst(moments: Sequence[Moment]) -> Moment:
    """The moment with the most alive; the first of several."""
    return max(moments, key=lambda moment: moment.total_bytes)


def estimate_at_worst(
    moments: Sequence[Moment], *, assumptions: tuple[str, ...] = (), omitted: tuple[Omission, ...] = ()
) -> Estimate:
    """The estimate of a step: the components of its worst moment, and every phase with its own worst.

    A peak is the maximum over moments, never a sum of peaks that are not alive together.
    """
    peak = worst(moments)
    names = dict.fromkeys(moment.phase for moment in moments)
    phases = tuple(
        Phase(name=name, bytes=worst([moment for moment in moments if moment.phase == name]).total_bytes)
        for name in names
    )
    return Estimate(
        fidelity="formula",
        components=tuple(part for part in peak.components if part.high_bytes),
        total_bytes=peak.total_bytes,
        low_bytes=sum(part.low_bytes for part in peak.components),
        high_bytes=sum(part.high_bytes for part in peak.components),
        phases=phases,
        peak_phase=peak.phase,
        assumptions=assumptions,
        omitted=omitted,
    )
