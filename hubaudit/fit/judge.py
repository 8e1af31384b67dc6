"""The whole answer for each device: verdict, room left, and the most that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.fit.serving import budget_bytes, served
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
    return tuple(_judged(scale, workload, estimate, hardware) for hardware in devices)


def _judged(scale: Scale, workload: Workload, estimate: Estimate, hardware: Hardware) -> Fit:
    usable_bytes = budget_bytes(workload.runtime, hardware.usable_bytes)
    word, reason = verdict(estimate, replace(hardware, usable_bytes=usable_bytes))
    server = served(scale.facts, workload, estimate, hardware)
    # Where a part of the estimate is missing, or how devices share it, what more would fit cannot be known either.
    is_known = word != "unknown" and not estimate.omitted
    return Fit(
        hardware=hardware,
        verdict=word,
        headroom_bytes=usable_bytes - estimate.total_bytes,
        max_batch=largest_batch(scale, usable_bytes) if is_known else None,
        max_context=longest_context(scale, usable_bytes) if is_known else None,
        best_precision=best_precision(scale, usable_bytes) if is_known and _has_precisions(workload) else None,
        min_devices=min_devices(estimate, usable_bytes),
        reason=reason or (_CACHE_ALONE if scale.asked.mode == "kv" else None),
        cache_tokens=None if server is None else server.cache_tokens,
        full_sequences=None if server is None else server.sequences,
        full_tokens=None if server is None else server.sequence_tokens,
    )


def _has_precisions(workload: Workload) -> bool:
    """Whether weights can be loaded another way: the ones that are tried are transformers'."""
    return workload.mode == "infer" and workload.runtime == "transformers"
