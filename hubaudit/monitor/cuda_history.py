"""The history that ``torch.cuda.memory._record_memory_history`` keeps, as the timeline that is drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hubaudit.exact.events import Alloc, Event, Free, Mark, Trace
from hubaudit.exact.replay import ACTIVATIONS, Moment, Replay
from hubaudit.monitor.reading import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GROWS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_FREED = "free_completed"
_LABEL = "history of torch.cuda's caching allocator on this device"


class Held(NamedTuple):
    """A storage at ``address`` was ``component`` at that time."""

    address: int
    time_us: int
    component: str


@dataclass(slots=True)
class _Walk:
    """The state while the entries are gone through."""

    events: list[Event] = field(default_factory=list)
    components: dict[int, str] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    live: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    reserved: int = 0
    peak: int = 0
    peak_reserved: int = 0
    at_peak: dict[str, int] = field(default_factory=dict)

    def take(self, number: int, entry: dict[str, Any], component: str | None) -> None:
        """An entry of the allocator's; others change nothing."""
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "alloc":
            self.live[address] = (number, size, component or ACTIVATIONS)
            self.held[component or ACTIVATIONS] += size
            self.events.append(Alloc(number, size, "alloc"))
            if component is not None:
                self.components[number] = component
        elif action == _FREED and address in self.live:
            born, size, name = self.live.pop(address)
            self.held[name] -= size
            self.events.append(Free(born))
        elif action in _GROWS:
            self.reserved = max(0, self.reserved + _GROWS[action] * size)
            self.peak_reserved = max(self.peak_reserved, self.reserved)
            return
        else:
            return
        now = {name: held for name, held in self.held.items() if held}
        if sum(now.values()) > self.peak:
            self.peak, self.at_peak = sum(now.values()), now
        self.moments.append(Moment(event=len(self.events) - 1, by_component=now, reserved_bytes=self.reserved))


def line_of_history(history: Sequence[dict[str, Any]], held: Iterable[Held], phases: Iterable[tuple[int, str]]) -> Line:
    """The timeline of one device's trace entries (``action``, ``addr``, ``size``, ``time_us``), in their order.

    ``phases`` are the microsecond at which each ended, and its name. What was there before the history began is not in it. Source of
    the format: torch/cuda/memory.py, torch/cuda/_memory_viz.py.
    """
    names = _components(history, held)
    walk = _Walk()
    ends = list(phases)
    for number, entry in enumerate(history):
        while ends and ends[0][0] < entry.get("time_us", 0):
            walk.events.append(Mark(ends.pop(0)[1]))
        walk.take(number, entry, names.get(number))
    walk.events.extend(Mark(label) for _, label in ends)
    made = Replay(
        phases=(),
        peak_allocated_bytes=walk.peak,
        peak_reserved_bytes=max(walk.peak_reserved, walk.peak),
        at_peak=walk.at_peak,
        peak_phase=None,
        timeline=tuple(walk.moments),
        requests=(),
        retries=0,
    )
    return Line(made, Trace(tuple(walk.events), walk.components), _LABEL)


def _components(history: Sequence[dict[str, Any]], held: Iterable[Held]) -> dict[int, str]:
    """The entries whose component is known: the last allocation at an address before somebody said what lies there."""
    born: dict[int, list[int]] = {}
    for at, entry in enumerate(history):
        if entry["action"] == "alloc":
            born.setdefault(entry["addr"], []).append(at)
    found: dict[int, str] = {}
    for one in held:
        before = [at for at in born.get(one.address, ()) if history[at].get("time_us", 0) <= one.time_us]
        if before:
            found[before[-1]] = one.component
    return found
