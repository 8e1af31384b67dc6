"""The exact part of an audit: the report's own workload traced, replayed, and put beside the estimate by formula."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from hubaudit.errors import CannotAuditError, HubauditError, UsageError
from hubaudit.exact.device import Device, blas_policy, device_named, device_of_capability
from hubaudit.exact.plan import DEFAULT_CAPABILITY, WORST, of_checkpoint, plan_of
from hubaudit.exact.replay import Replay, replay, smallest_capacity
from hubaudit.types import Component, Estimate, ExactFit, ExactMemory, ExactPhase, Omission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.exact.device import BlasPolicy
    from hubaudit.exact.events import Trace
    from hubaudit.exact.plan import Plan
    from hubaudit.exact.settings import AllocatorSettings
    from hubaudit.types import Category, Hardware, Report, RepoSnapshot

_NEEDED = ("torch", "transformers")
_CATEGORIES: dict[str, Category] = {
    "weights": "Parameter",
    "buffers": "Buffer",
    "adapters": "Parameter",
    "gradients": "Gradient",
    "optimizer": "OptimizerState",
    "kv_cache": "KVCache",
    "activations": "Activation",
    "autocast_copies": "Activation",
    "logits": "Activation",
    "workspace": "Workspace",
    "fragmentation": "Fragmentation",
}
_ORDER = tuple(_CATEGORIES)
_OUTSIDE = "outside PyTorch's allocator: the CUDA context, what cuBLAS and cuDNN keep for themselves, other processes"
_ASSUMPTIONS = (
    "loaded by model.to('cuda'), which leaves other gaps than device_map, which reserves one block first",
    "transformers' own PyTorch code: no compiled graphs, no hub kernels, no flash-attn, mamba-ssm or causal-conv1d packages",
)


class Exact(NamedTuple):
    """What the report shows, and the run behind it, for pictures and snapshots."""

    memory: ExactMemory
    trace: Trace
    replayed: Replay


def exact_audit(snapshot: RepoSnapshot, report: Report, settings: AllocatorSettings) -> Exact:
    """Trace the report's workload on transformers' own class for the repository's config.json.

    Raises:
        HubauditError: the libraries are missing, the workload is outside exact mode, or the model cannot be built or run on fake tensors.
    """
    _need_libraries()
    config = snapshot.configs.get("config.json")
    if not config:
        raise CannotAuditError("exact mode needs the repository's config.json, which it does not have")
    plan = of_checkpoint(plan_of(report.workload), config)
    devices = [device_named(one.hardware.name) for one in report.fit]
    device = next((one for one in devices if one is not None), None) or device_of_capability(DEFAULT_CAPABILITY)
    import torch

    trace, notes, is_routed = _traced(dict(config), plan, device)
    policy = blas_policy(torch.__version__, device)
    replayed = replay(trace, policy, settings, with_timeline=True)
    worst = None
    if is_routed:
        worst = replay(_traced(dict(config), replace(plan, routing=WORST), device)[0], policy, settings)
        notes += (_bounds(replayed, worst),)
    memory = ExactMemory(
        label=f"torch.cuda memory for torch {torch.__version__.split('+')[0]} on compute capability {device.capability_text} ({device.name}), "
        "eager mode",
        estimate=_estimate(replayed, worst, (*_notes(config, plan, device, is_routed=is_routed), *notes)),
        peak_allocated_bytes=replayed.peak_allocated_bytes,
        peak_reserved_bytes=replayed.peak_reserved_bytes,
        phases=tuple(
            ExactPhase(
                name=phase.label,
                allocated_bytes=phase.allocated_bytes,
                reserved_bytes=phase.reserved_bytes,
                peak_allocated_bytes=phase.phase_peak_allocated_bytes,
                peak_reserved_bytes=phase.phase_peak_reserved_bytes,
            )
            for phase in replayed.phases
        ),
        fits=_fits(report, trace, policy, settings),
    )
    return Exact(memory, trace, replayed)


def _need_libraries() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--exact needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            hint="pip install 'hubaudit[exact]'",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' own words: what matters of them becomes an error or a note."""
    transformers = import_module("transformers")
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        transformers.logging.set_verbosity(level)


def _bounds(balanced: Replay, worst: Replay) -> str:
    """What the routing of tokens to experts makes of the peaks."""
    figures = [
        f"{one.peak_allocated_bytes:,} B allocated and {one.peak_reserved_bytes:,} B reserved"
        for one in (balanced, worst)
    ]
    return (
        f"which expert gets which tokens is in the router's weights: at most {figures[0]} if all get as many (shown), {figures[1]} if as many "
        "experts as a token chooses get all"
    )


def _traced(config: dict[str, object], plan: Plan, device: Device) -> tuple[Trace, tuple[str, ...], bool]:
    """The trace, what is to be said of it, and whether it depends on the routing of tokens to experts."""
    with _quiet():
        scenario = import_module("hubaudit.exact.scenario")
        try:
            tracer = scenario.run(config, plan, device)
        except HubauditError:
            raise
        except Exception as error:  # a model's code may fail on tensors without data in any way
            reason = " ".join(str(error).split())[:200]
            raise CannotAuditError(
                f"the model's code does not run on tensors without data: {type(error).__name__}: {reason}",
                hint="without --exact the estimate is by formula",
            ) from error
    trace = tracer.trace()
    return trace, _untraced_steps(plan, trace), tracer.routing.was_asked


def _untraced_steps(plan: Plan, trace: Trace) -> tuple[str, ...]:
    """Which of many decoding steps the trace leaves out."""
    generation = import_module("hubaudit.exact.generation")
    steps = generation.first_steps(plan)
    if plan.mode != "infer" or steps >= plan.new_tokens:
        return ()
    if any(getattr(event, "label", None) == generation.LAST_TOKENS for event in trace.events):
        return (
            f"of {plan.new_tokens} decoding steps the first {steps} and the last 2 were traced; those between may leave other gaps in "
            "reserved memory",
        )
    return (
        f"of {plan.new_tokens} decoding steps the first {steps} were traced: what grows after them is not in the figures",
    )


def _notes(config: object, plan: Plan, device: Device, *, is_routed: bool) -> tuple[str, ...]:
    """What the figures take for granted."""
    notes = list(_ASSUMPTIONS)
    if device.capability[0] in (9, 10) and plan.attention == "sdpa":
        notes.append("attention by cuDNN, whose workspace is not in the figures")
    if not is_routed and isinstance(config, dict) and any("expert" in name for name in config):
        notes.append(
            "experts get their tokens as transformers' grouped product does, whose memory does not depend on the routing"
        )
    if plan.quant == "int8":
        notes.append(
            "8-bit products: no column of inputs holds outliers. While a product runs, each column that does takes 2 bytes a token and up to 9 "
            "bytes an output row more, and the first of them one more copy of the result"
        )
    if plan.cache == "static" and plan.mode == "infer":
        notes.append(
            "eager mode: generate() compiles its steps for a static cache on CUDA, unless it is told disable_compile=True"
        )
    if plan.mode == "train" and plan.grad_accum > 2:
        notes.append(f"2 of {plan.grad_accum} batches of a step were traced; the others are as the second")
    return tuple(notes)


def _estimate(replayed: Replay, worst: Replay | None, notes: tuple[str, ...]) -> Estimate:
    parts = dict(replayed.at_peak)
    parts["fragmentation"] = replayed.peak_reserved_bytes - replayed.peak_allocated_bytes
    names = sorted(parts, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    return Estimate(
        fidelity="exact",
        components=tuple(_component(name, parts[name]) for name in names),
        total_bytes=replayed.peak_reserved_bytes,
        low_bytes=replayed.peak_reserved_bytes,
        high_bytes=max(one.peak_reserved_bytes for one in (replayed, worst) if one is not None),
        peak_phase=replayed.peak_phase,
        assumptions=notes,
        omitted=(Omission(id="cuda_context", reason=_OUTSIDE),),
    )


def _component(name: str, size_bytes: int) -> Component:
    what = "reserved − allocated at their peaks" if name == "fragmentation" else "alive at the peak of allocated bytes"
    return Component(
        id=name,
        category=_CATEGORIES.get(name, "Activation"),
        bytes=size_bytes,
        formula="traced",
        inputs={"traced": size_bytes},
        exactness="exact",
        sources=(f"trace of the model's own code, allocator replayed: {what}",),
        low_bytes=size_bytes,
        high_bytes=size_bytes,
    )


def _fits(report: Report, trace: Trace, policy: BlasPolicy, settings: AllocatorSettings) -> tuple[ExactFit, ...]:
    """Each device by replaying with what its process can have. Needs are found once, as they do not depend on the device."""
    if not report.fit:
        return ()
    context = sum(part.bytes for part in report.estimate.components if part.id == "cuda_context")
    needed = smallest_capacity(trace, policy, replace(settings, expandable_segments=False))
    expandable = smallest_capacity(trace, policy, replace(settings, expandable_segments=True))
    return tuple(_fit(one.hardware, one.hardware.usable_bytes - context, needed, expandable) for one in report.fit)


def _fit(hardware: Hardware, capacity_bytes: int, needed: int, expandable: int) -> ExactFit:
    return ExactFit(
        hardware=hardware,
        capacity_bytes=capacity_bytes,
        fits=needed <= capacity_bytes,
        fits_expandable=expandable <= capacity_bytes,
        needed_bytes=needed,
        needed_expandable_bytes=expandable,
    )
