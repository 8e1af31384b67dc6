"""The whole answer for each device: verdict, room left, and the most that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.fit.solver import Scale, best_precision, largest_batch, longest_context
from hubaudit.fit.verdict import min_devices, verdict
from hubaudit.types import Fit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.types import Estimate, Hardware, ModelFacts, Workload

_CACHE_ALONE = "the KV cache alone, without weights and activations"


def judge(facts: ModelFacts, workload: Workload, estimate: Estimate, devices: Iterable[Hardware]) -> tuple[Fit, ...]:
    """What ``estimate``, made of ``facts`` and ``workload``, means on each of ``devices``."""
    scale = Scale(facts, workload)
    return tuple(_judged(scale, estimate, hardware) for hardware in devices)


def _judged(scale: Scale, estimate: Estimate, hardware: Hardware) -> Fit:
    usable_bytes = hardware.usable_bytes
    word, reason = verdict(estimate, hardware)
    # Where a part of the estimate is missing, or how devices share it, what more would fit cannot be known either.
    is_known = word != "unknown" and not estimate.omitted
    return Fit(
        hardware=hardware,
        verdict=word,
        headroom_bytes=usable_bytes - estimate.total_bytes,
        max_batch=largest_batch(scale, usable_bytes) if is_known else None,
        max_context=longest_context(scale, usable_bytes) if is_known else None,
        best_precision=best_precision(scale, usable_bytes) if is_known and scale.asked.mode == "infer" else None,
        min_devices=min_devices(estimate, usable_bytes),
        reason=reason or (_CACHE_ALONE if scale.asked.mode == "kv" else None),
    )
