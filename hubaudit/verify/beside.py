"""A run in a child process, put beside the estimate by formula and the exact one of the same workload."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hubaudit.auditing import audit_facts
from hubaudit.errors import CannotAuditError, HubauditError, UsageError
from hubaudit.estimate.modes import estimate
from hubaudit.facts.repository import understand
from hubaudit.verify.job import Job, check
from hubaudit.verify.launch import need_libraries, run
from hubaudit.verify.measurement import CacheUse, Figure, MeasuredPhase, Measurement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hubaudit.exact.events import Trace
    from hubaudit.exact.replay import PhaseMemory, Replay
    from hubaudit.types import Component, Hardware, ModelFacts, Report, RepoSnapshot, Workload

#: Components that a run counts whole, and the estimate's parts that they are.
WHOLE = {
    "weights": ("weights", "buffers"),
    "adapters": ("adapters",),
    "optimizer": ("optimizer",),
    "kv_cache": ("kv_cache", "recurrent_state", "cross_cache"),
}
#: Of which the first part must be known, or nothing is.
_FIRST = ("weights",)
#: Parts of the estimate that no allocator of tensors holds; on the CPU there are no workspaces of products either.
_OUTSIDE = {
    "cuda": ("cuda_context",),
    "cpu": ("cuda_context", "workspace", "block_remainders", "gradient_remainders"),
}
MAX_ALLOCATED, MAX_RESERVED = "max_allocated", "max_reserved"


class Request(NamedTuple):
    """How to measure. ``source`` is what real weights are loaded from; ``None`` for random ones."""

    device: str = "cuda"
    source: str | None = None
    revision: str | None = None
    repeats: int = 0
    limit_seconds: float = 900.0
    with_exact: bool = True
    environment: Mapping[str, str] | None = None
    timeline: str | None = None


class _Exact(NamedTuple):
    """Exact mode's figures on the same terms as the measured ones, or the reason why there are none."""

    peak_allocated: int | None = None
    peak_reserved: int | None = None
    phases: tuple[PhaseMemory, ...] = ()
    components: Mapping[str, int] = {}
    reason: str | None = None


def measure(snapshot: RepoSnapshot, workload: Workload, request: Request) -> Measurement:
    """Run ``workload`` on the repository's model, and compare.

    Raises:
        UsageError: the workload is not run here, or a library or the device is missing.
        CannotAuditError: the model cannot be loaded or run.
        MeasurementError: the run ended otherwise: out of memory, out of time, killed.
    """
    check(workload)
    need_libraries(workload.quant, adapters=workload.mode == "train")
    config = snapshot.configs.get("config.json")
    if not config:
        raise CannotAuditError("verify needs the repository's config.json, which it does not have")
    facts = understand(snapshot)
    report = audit_facts(snapshot, facts, workload, with_variants=False)
    job = Job(
        config=dict(config),
        workload=report.workload,
        device=request.device,
        source=request.source,
        revision=request.revision,
        repeats=request.repeats,
        timeline=request.timeline,
        title=f"{report.subject.repo_id}: {report.workload.mode}, measured",
    )
    result = run(job, request.limit_seconds, environment=request.environment)
    exact = _exact(snapshot, facts, report, request, result) if request.with_exact else _Exact(reason="not asked for")
    return compared(report, facts, job, result, exact)


def compared(
    report: Report, facts: ModelFacts, job: Job, result: Mapping[str, Any], exact: _Exact | None = None
) -> Measurement:
    """The child's ``result`` beside both estimates."""
    exact = exact or _Exact(reason="not asked for")
    kind = job.device.partition(":")[0]
    return Measurement(
        subject=report.subject,
        config=job.config,
        workload=report.workload,
        device=kind,
        weights="random" if job.source is None else "loaded",
        measures=result["measures"],
        environment=result["environment"],
        phases=tuple(_phases(result["phases"], exact.phases)),
        figures=(*_components(report, facts, result, exact), *_peaks(report, kind, result, exact)),
        cache=None if result["cache"] is None else CacheUse(**result["cache"]),
        rests=tuple(result["rests"]),
        peak_resident_bytes=result["peak_resident_bytes"],
        formula_lacks=tuple(part.id for part in report.estimate.omitted),
        exact_reason=exact.reason,
    )


def formula_peaks(report: Report, kind: str) -> tuple[int, int]:
    """The estimate's peaks of allocated and reserved bytes, as an allocator on ``kind`` would tell them: one figure, as it has no term for cached gaps."""
    inside = _sum(part for part in report.estimate.components if part.id not in _OUTSIDE[kind])
    return inside, inside


def formula_component(report: Report, facts: ModelFacts, name: str) -> int | None:
    """A component whole: a cache with every token that was fed, not as it is at the peak."""
    parts = report.estimate.components
    work = report.workload
    if name == "kv_cache" and work.mode != "train" and work.new_tokens:
        # the last word that is generated is never fed to the model
        parts = estimate(facts, replace(work, mode="kv", new_tokens=work.new_tokens - 1)).components
    found = {part.id: part.bytes for part in parts if part.id in WHOLE[name]}
    return sum(found.values()) if found and (name not in _FIRST or WHOLE[name][0] in found) else None


def _components(report: Report, facts: ModelFacts, result: Mapping[str, Any], exact: _Exact) -> Iterable[Figure]:
    counted = result["components"]
    for name in WHOLE:
        if name in counted and (name != "kv_cache" or report.workload.mode != "train"):
            yield Figure(
                id=name,
                measured_bytes=counted[name],
                formula_bytes=formula_component(report, facts, name),
                exact_bytes=_traced(exact.components, name),
            )


def _traced(components: Mapping[str, int], name: str) -> int | None:
    found = [components[one] for one in WHOLE[name] if one in components]
    return sum(found) if found else None


def _peaks(report: Report, kind: str, result: Mapping[str, Any], exact: _Exact) -> Iterable[Figure]:
    allocated, reserved = formula_peaks(report, kind)
    phases = [phase for phase in result["phases"] if not phase["name"].startswith("rest")]
    for name, key, formula, traced in (
        (MAX_ALLOCATED, "peak_allocated_bytes", allocated, exact.peak_allocated),
        (MAX_RESERVED, "peak_reserved_bytes", reserved, exact.peak_reserved),
    ):
        measured = max(phase[key] for phase in phases)
        yield Figure(id=name, measured_bytes=measured, formula_bytes=formula, exact_bytes=traced)


def _phases(rows: Iterable[Mapping[str, Any]], exact: tuple[PhaseMemory, ...]) -> Iterable[MeasuredPhase]:
    by_name = {phase.label: phase for phase in exact}
    for row in rows:
        found = by_name.get(row["name"])
        yield MeasuredPhase(
            **row,
            exact_peak_allocated_bytes=None if found is None else found.phase_peak_allocated_bytes,
            exact_peak_reserved_bytes=None if found is None else found.phase_peak_reserved_bytes,
        )


# --- exact mode on the same terms -------------------------------------------------------------------------------------------------


def _exact(
    snapshot: RepoSnapshot, facts: ModelFacts, report: Report, request: Request, result: Mapping[str, Any]
) -> _Exact:
    from hubaudit.exact.auditing import exact_audit
    from hubaudit.exact.settings import parse_settings

    kind = request.device.partition(":")[0]
    settings = parse_settings(result["environment"].get("alloc_conf") or "")
    hardware = _hardware(result["environment"]) if kind == "cuda" else ()
    try:
        on_it = audit_facts(snapshot, facts, report.workload, hardware, with_variants=False) if hardware else report
        made = exact_audit(snapshot, on_it, settings)
    except HubauditError as error:
        return _Exact(reason=error.message)
    replayed = made.replayed if kind == "cuda" else tensors_only(made.trace)
    return _Exact(
        replayed.peak_allocated_bytes,
        replayed.peak_reserved_bytes,
        replayed.phases,
        components_of(made.trace),
    )


def tensors_only(trace: Trace) -> Replay:
    """A trace without what CUDA's kernels take beside tensors, and without workspaces of products: what a CPU measures."""
    from hubaudit.exact.device import NO_WORKSPACES
    from hubaudit.exact.events import Alloc, Free, Scratch
    from hubaudit.exact.events import Trace as Made
    from hubaudit.exact.replay import WORKSPACE, replay

    inside = {number for number, name in trace.components.items() if name == WORKSPACE}
    events = tuple(
        event
        for event in trace.events
        if not isinstance(event, Scratch) and not (isinstance(event, (Alloc, Free)) and event.id in inside)
    )
    return replay(Made(events, trace.components), NO_WORKSPACES)


def components_of(trace: Trace) -> dict[str, int]:
    """For each component the most bytes of its storages alive at the end of a phase, unrounded."""
    from hubaudit.exact.events import Alloc, Free, Mark

    live: dict[int, int] = {}
    most: dict[str, int] = {}
    held: Counter[str] = Counter()
    for event in trace.events:
        if isinstance(event, Alloc):
            live[event.id] = event.bytes
            held[trace.components.get(event.id, "")] += event.bytes
        elif isinstance(event, Free):
            held[trace.components.get(event.id, "")] -= live.pop(event.id, 0)
        elif isinstance(event, Mark):
            most = {name: max(most.get(name, 0), size) for name, size in held.items()}
    return {name: size for name, size in most.items() if size}


def _hardware(environment: Mapping[str, Any]) -> tuple[Hardware, ...]:
    """The GPU that was measured on, as exact mode needs it named."""
    from hubaudit.types import Hardware

    total = environment.get("total_bytes")
    if not total:
        raise UsageError("the run did not say on which GPU it was")
    return (Hardware(name=str(environment["device"]), usable_bytes=int(total), usable_source="this machine"),)


def _sum(parts: Iterable[Component]) -> int:
    return sum(part.bytes for part in parts)
