"""Several devices: the split that leaves most room on each, and the fewest devices that are enough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.estimate.modes import estimate, is_split
from hubaudit.estimate.split.layout import Split, SplitError, split_of
from hubaudit.fit.verdict import min_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.estimate.split.room import Room
    from hubaudit.types import Estimate, ModelFacts, Workload

#: Nobody asks for more; and so many numbers are tried beyond the least that could do.
MOST_DEVICES = 512
_TRIED = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A workload split over devices, the split's name, and the estimate for the fullest of them."""

    workload: Workload
    label: str
    devices: int
    estimate: Estimate


def may_split(workload: Workload) -> bool:
    """Whether a split may be chosen: training says itself how its processes share."""
    return workload.mode != "train"


def as_asked(workload: Workload) -> Split | None:
    """The split that the workload itself asks for; ``None`` where it asks for none."""
    return split_of(workload) if may_split(workload) and is_split(workload) else None


def roomiest(facts: ModelFacts, workload: Workload, count: int) -> Shared | None:
    """The split over exactly ``count`` devices whose fullest has the least to hold, by the upper end of its band; ``None`` where the engine refuses all."""
    return min(_splits(facts, workload, count), key=_need, default=None)


def best_within(facts: ModelFacts, workload: Workload, count: int) -> Shared | None:
    """The same over at most ``count`` devices: all of them, where the engine can split so, else as many as it can."""
    return next((best for number in range(count, 1, -1) if (best := roomiest(facts, workload, number))), None)


def fewest_devices(facts: ModelFacts, workload: Workload, alone: Estimate, usable_bytes: int) -> Shared | None:
    """The least number of devices on which some split fits with its whole band; ``None`` where none was found.

    ``alone`` is the estimate on one device. Numbers below :func:`min_devices` of it are not tried: no split can do with them.
    """
    least = min_devices(alone, usable_bytes)
    if least is None or alone.omitted:
        return None
    from hubaudit.estimate.split.room import Room  # only for those who ask

    room = Room(facts, usable_bytes)
    for count in range(max(2, least), min(least + _TRIED, MOST_DEVICES) + 1):
        best = min(_splits(facts, workload, count, room), key=_need, default=None)
        if best is not None:
            return best
    return None


def _need(shared: Shared) -> int:
    return shared.estimate.high_bytes


def _splits(facts: ModelFacts, workload: Workload, count: int, room: Room | None = None) -> Iterator[Shared]:
    """Every split over ``count`` devices that the engine does not refuse, of those that ``room`` holds where it is given."""
    for tp in range(1, count + 1):
        if count % tp:
            continue
        asked = replace(workload, tp=tp, pp=count // tp, ep=1)
        try:
            if room is not None and not room.holds(asked):
                continue
            made = estimate(facts, asked)
        except SplitError:
            continue
        yield Shared(workload=asked, label=split_of(asked).label, devices=count, estimate=made)
