"""A recorded program replayed through the allocator: what a device would report, when, and of what it would consist."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hubaudit.exact.allocator import CachingAllocator, OutOfDeviceMemoryError
from hubaudit.exact.events import Alloc, BlasCall, EmptyCache, Free, Mark, Scratch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.exact.blocks import Block
    from hubaudit.exact.device import BlasPolicy
    from hubaudit.exact.events import Event, Trace
    from hubaudit.exact.settings import AllocatorSettings

WORKSPACE = "workspace"
ACTIVATIONS = "activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMemory:
    """The counters of ``torch.cuda`` at the end of a phase; peaks are those since the program began.

    ``phase_peak_allocated_bytes`` and ``phase_peak_reserved_bytes`` are the largest within the phase.
    """

    label: str
    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    phase_peak_allocated_bytes: int
    phase_peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One step of the timeline: after ``event``, allocated bytes by component and reserved bytes."""

    event: int
    by_component: Mapping[str, int]
    reserved_bytes: int


class Request(NamedTuple):
    """One block handed out or taken back."""

    is_alloc: bool
    address: int
    size_bytes: int
    component: str
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the device would have reported. ``at_peak`` divides the peak of allocated bytes among the components."""

    phases: tuple[PhaseMemory, ...]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    at_peak: Mapping[str, int]
    peak_phase: str | None
    timeline: tuple[Moment, ...]
    requests: tuple[Request, ...]
    retries: int


@dataclass(slots=True)
class _Run:
    """The state of a replay."""

    allocator: CachingAllocator
    policy: BlasPolicy
    components: Mapping[int, str]
    wants_timeline: bool
    live: dict[int, Block | None] = field(default_factory=dict)
    workspaces: dict[tuple[str, bool], Block | None] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    at_peak: dict[str, int] = field(default_factory=dict)
    phases: list[PhaseMemory] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    peak_event: int = 0
    phase_allocated: int = 0
    phase_reserved: int = 0

    def take(self, size_bytes: int, component: str, event: int) -> Block | None:
        before = self.allocator.peak_allocated_bytes
        block = self.allocator.malloc(size_bytes)
        if block is not None:
            self.held[component] += block.size_bytes
        if self.allocator.peak_allocated_bytes > before:
            self.at_peak, self.peak_event = dict(self.held), event
        self.phase_allocated = max(self.phase_allocated, self.allocator.allocated_bytes)
        self.phase_reserved = max(self.phase_reserved, self.allocator.reserved_bytes)
        if self.wants_timeline and block is not None:
            self.requests.append(Request(True, block.address, block.size_bytes, component, event))
            self.note(event)
        return block

    def give(self, block: Block | None, component: str, event: int) -> None:
        if block is not None:
            self.held[component] -= block.size_bytes
            if self.wants_timeline:
                self.requests.append(Request(False, block.address, block.size_bytes, component, event))
            self.allocator.free(block)
            if self.wants_timeline:
                self.note(event)

    def note(self, event: int) -> None:
        held = {name: size for name, size in self.held.items() if size}
        self.timeline.append(Moment(event=event, by_component=held, reserved_bytes=self.allocator.reserved_bytes))

    def mark(self, label: str) -> None:
        allocator = self.allocator
        self.phases.append(
            PhaseMemory(
                label=label,
                allocated_bytes=allocator.allocated_bytes,
                reserved_bytes=allocator.reserved_bytes,
                peak_allocated_bytes=allocator.peak_allocated_bytes,
                peak_reserved_bytes=allocator.peak_reserved_bytes,
                phase_peak_allocated_bytes=max(self.phase_allocated, allocator.allocated_bytes),
                phase_peak_reserved_bytes=max(self.phase_reserved, allocator.reserved_bytes),
            )
        )
        self.phase_allocated = self.phase_reserved = 0


def replay(
    trace: Trace,
    policy: BlasPolicy,
    settings: AllocatorSettings | None = None,
    capacity_bytes: int | None = None,
    *,
    with_timeline: bool = False,
) -> Replay:
    """Run a trace through the allocator.

    Raises:
        OutOfDeviceMemoryError: ``capacity_bytes`` are not enough, not even after cached memory was given back.
    """
    run = _Run(CachingAllocator(settings, capacity_bytes), policy, trace.components, with_timeline)
    for at, event in enumerate(trace.events):
        _step(run, at, event)
    return _result(run, trace)


def fits(trace: Trace, policy: BlasPolicy, settings: AllocatorSettings, capacity_bytes: int) -> bool:
    """Whether the program runs to its end where the device gives so many bytes."""
    try:
        replay(trace, policy, settings, capacity_bytes)
    except OutOfDeviceMemoryError:
        return False
    return True


def smallest_capacity(trace: Trace, policy: BlasPolicy, settings: AllocatorSettings, granule: int = 2**21) -> int:
    """The fewest bytes, in steps of 2 MiB, that the program runs in: what to compare with a device, rather than its reserved peak.

    Found by bisection between the peaks of allocated and reserved bytes, which takes fitting to be monotonic in the capacity.
    """
    whole = replay(trace, policy, settings)
    low, high = whole.peak_allocated_bytes // granule, -(-whole.peak_reserved_bytes // granule)
    while low < high:
        middle = (low + high) // 2
        if fits(trace, policy, settings, middle * granule):
            high = middle
        else:
            low = middle + 1
    return high * granule


def _step(run: _Run, at: int, event: Event) -> None:
    if isinstance(event, Alloc):
        run.live[event.id] = run.take(event.bytes, run.components.get(event.id, ACTIVATIONS), at)
    elif isinstance(event, Free):
        run.give(run.live.pop(event.id, None), run.components.get(event.id, ACTIVATIONS), at)
    elif isinstance(event, Scratch):
        for block in [run.take(size, WORKSPACE, at) for size in event.sizes]:
            run.give(block, WORKSPACE, at)
    elif isinstance(event, BlasCall):
        _multiply(run, at, event)
    elif isinstance(event, Mark):
        run.mark(event.label)
    elif isinstance(event, EmptyCache):
        run.allocator.empty_cache()


def _multiply(run: _Run, at: int, event: BlasCall) -> None:
    """The workspace of a product: one for each thread and library, kept or passing."""
    policy = run.policy
    is_lt = event.library == "cublaslt" and policy.lt != "shared"
    size_bytes = policy.lt_bytes if is_lt else policy.kept_bytes
    if not size_bytes:
        return
    if is_lt and policy.lt == "passing":
        run.give(run.take(size_bytes, WORKSPACE, at), WORKSPACE, at)
        return
    key = ("lt" if is_lt else "blas", event.is_backward)
    if key not in run.workspaces:
        run.workspaces[key] = run.take(size_bytes, WORKSPACE, at)


def _result(run: _Run, trace: Trace) -> Replay:
    labels: list[Any] = [event.label for event in trace.events[run.peak_event :] if isinstance(event, Mark)]
    return Replay(
        phases=tuple(run.phases),
        peak_allocated_bytes=run.allocator.peak_allocated_bytes,
        peak_reserved_bytes=run.allocator.peak_reserved_bytes,
        at_peak={name: size for name, size in run.at_peak.items() if size},
        peak_phase=labels[0] if labels else None,
        timeline=tuple(run.timeline),
        requests=tuple(run.requests),
        retries=run.allocator.retries,
    )
