"""The whole answer for each device: verdict, room left, and the most that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.fit.advice import advise
from hubaudit.fit.serving import budget_bytes, served
from hubaudit.fit.solver import Scale, best_precision, largest_batch, longest_context
from hubaudit.fit.splits import Shared, as_asked, best_within, fewest_devices, may_split
from hubaudit.fit.verdict import min_devices, on_one_device, verdict
from hubaudit.types import Fit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.fit.verdict import Verdict
    from hubaudit.types import Estimate, Hardware, ModelFacts, Workload

_CACHE_ALONE = "the KV cache alone, without weights and activations"


def judge(facts: ModelFacts, workload: Workload, estimate: Estimate, devices: Iterable[Hardware]) -> tuple[Fit, ...]:
    """What ``estimate``, made of ``facts`` and ``workload``, means on each of ``devices``.

    Where the workload does not say how several devices share the model, the engine's split that leaves most room on each is taken.
    """
    scales: dict[Workload, Scale] = {}
    return tuple(_judged(scales, facts, workload, estimate, hardware) for hardware in devices)


def _judged(
    scales: dict[Workload, Scale], facts: ModelFacts, workload: Workload, estimate: Estimate, hardware: Hardware
) -> Fit:
    split = as_asked(workload)
    if split is not None and hardware.count == 1:  # the kind of device was named, and the split says how many
        hardware = replace(hardware, count=split.devices)
    usable_bytes = budget_bytes(workload.runtime, hardware.usable_bytes)
    usable = replace(hardware, usable_bytes=usable_bytes)
    shared = _shared(facts, workload, estimate, usable)
    if shared is not None:
        workload, estimate = shared.workload, shared.estimate
    word, reason = _verdict(estimate, usable, None if split is None else split.devices, shared)
    if workload not in scales:
        scales[workload] = Scale(facts, workload)
    scale = scales[workload]
    alone = replace(hardware, count=1) if shared or split else hardware
    server = served(facts, workload, estimate, alone)
    # Where a part of the estimate is missing, or how devices share it, what more would fit cannot be known either.
    is_known = word != "unknown" and not estimate.omitted
    needed = _needed(facts, workload, estimate, usable) if split is None and shared is None else None
    if word in ("no", "tight"):
        reason = reason or advise(facts, workload, usable_bytes)
    return Fit(
        hardware=hardware,
        verdict=word,
        headroom_bytes=None if word == "unknown" else usable_bytes - estimate.total_bytes,
        max_batch=largest_batch(scale, usable_bytes) if is_known else None,
        max_context=longest_context(scale, usable_bytes) if is_known else None,
        best_precision=best_precision(scale, usable_bytes) if is_known and _has_precisions(workload) else None,
        min_devices=min_devices(estimate, usable_bytes) if shared is None and split is None else None,
        reason=reason or (_CACHE_ALONE if scale.asked.mode == "kv" else None),
        cache_tokens=None if server is None else server.cache_tokens,
        full_sequences=None if server is None else server.sequences,
        full_tokens=None if server is None else server.sequence_tokens,
        split=shared.label if shared else split.label if split else None,
        devices_needed=needed.devices if needed else None,
        needed_split=needed.label if needed else None,
    )


def _shared(facts: ModelFacts, workload: Workload, estimate: Estimate, usable: Hardware) -> Shared | None:
    """The best split of the model over the devices, where one alone does not hold it and the workload says nothing of sharing."""
    if usable.count == 1 or estimate.devices or not may_split(workload):
        return None
    if on_one_device(estimate, usable.usable_bytes) != "no":
        return None
    return best_within(facts, workload, usable.count)


def _verdict(
    estimate: Estimate, usable: Hardware, devices: int | None, shared: Shared | None
) -> tuple[Verdict, str | None]:
    if devices is not None and devices > usable.count:
        return "no", f"the split takes {devices} devices"
    if devices is None and shared is None:
        return verdict(estimate, usable)
    return verdict(estimate, replace(usable, count=1))


def _needed(facts: ModelFacts, workload: Workload, estimate: Estimate, usable: Hardware) -> Shared | None:
    if not may_split(workload) or on_one_device(estimate, usable.usable_bytes) in ("fits", "unknown"):
        return None
    return fewest_devices(facts, workload, estimate, usable.usable_bytes)


def _has_precisions(workload: Workload) -> bool:
    """Whether weights can be loaded another way: the ones that are tried are transformers'."""
    return workload.mode == "infer" and workload.runtime == "transformers"
