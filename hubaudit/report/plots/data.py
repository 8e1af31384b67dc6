"""What the pictures show of a report, as numbers: bars of components, curves with their bands, the devices' lines, and where each stops fitting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import dtype_named
from hubaudit.estimate.modes import estimate, is_split
from hubaudit.fit.serving import budget_bytes
from hubaudit.report.phrases import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hubaudit.types import Category, Estimate, Fit, Report, Workload

#: What the categories of components are called in the key, in the order in which they are stacked.
KINDS: dict[Category, str] = {
    "Parameter": "weights",
    "Buffer": "buffers",
    "Gradient": "gradients",
    "OptimizerState": "optimizer states",
    "KVCache": "KV cache",
    "Activation": "activations",
    "Workspace": "workspace",
    "Context": "CUDA context",
    "Fragmentation": "rounding",
}
_POINTS = 32
_TOKENS_WITHOUT_LIMIT = 131_072
_BATCH = 16
_STEPS_SHOWN = 4
_MOST = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One way to hold the weights: bytes by category, in the order of the stack."""

    name: str
    parts: tuple[tuple[Category, int], ...]

    @property
    def total_bytes(self) -> int:
        """The whole bar."""
        return sum(size for _, size in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What one device may hold."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The last value that still fits on a device, with its whole band; ``limit`` is which of the limits."""

    limit: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Memory over one number: ``(value, low, middle, high)`` in bytes, the value that was asked for, and where each device ends."""

    name: str
    points: tuple[tuple[int, int, int, int], ...]
    asked: int
    stops: tuple[Stop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictured:
    """All that is drawn of one report."""

    bars: tuple[Bar, ...]
    limits: tuple[Limit, ...]
    curves: tuple[Curve, ...]


def pictured(report: Report) -> Pictured:
    """Ask the estimator for every point."""
    return Pictured(
        bars=bars_of(report),
        limits=tuple(
            Limit(name=_device_name(fit), bytes=budget_bytes(report.workload.runtime, fit.hardware.usable_bytes))
            for fit in report.fit
        ),
        curves=tuple(curve for curve in (_context(report), _batch(report)) if len(curve.points) > 1),
    )


def bars_of(report: Report) -> tuple[Bar, ...]:
    """A bar for each way to hold the weights, or the one for the workload as asked."""
    bars = []
    for variant in report.variants:
        held = replace(_open(report.workload), dtype=dtype_named(variant.dtype), quant=variant.quant)
        name = f"{variant.quant} ({variant.dtype} kept)" if variant.quant else variant.dtype
        bars.append(Bar(name=name, parts=by_category(estimate(report.facts, held))))
    own = report.workload.quant or report.workload.dtype or "as asked"
    return tuple(bars) or (Bar(name=clean(own), parts=by_category(report.estimate)),)


def by_category(made: Estimate) -> tuple[tuple[Category, int], ...]:
    """The components' bytes added up by category, in the order of the stack, without those that are nothing."""
    sums = {kind: sum(part.bytes for part in made.components if part.category == kind) for kind in KINDS}
    return tuple((kind, size) for kind, size in sums.items() if size)


def _open(workload: Workload) -> Workload:
    """The workload with the cache's type left to follow the compute dtype, where it did."""
    follows = dtype_named(workload.kv_dtype or "") == dtype_named(workload.dtype or "")
    return replace(workload, kv_dtype=None) if follows else workload


def _context(report: Report) -> Curve:
    workload, positions = report.workload, report.facts.max_positions.value
    is_training = workload.mode == "train"
    new = 0 if is_training else workload.new_tokens or 0
    asked = (workload.sequence_tokens if is_training else (workload.prompt_tokens or 1) + new) or 1
    most = max(positions or min(_MOST, max(4 * asked, _TOKENS_WITHOUT_LIMIT)), asked)
    if is_training:  # a step grows so fast that a model's whole context would leave nothing to see of what was asked and of what fits
        found = [fit.max_context for fit in report.fit if fit.max_context is not None and _is_drawn(report, fit)]
        most = min(most, max(_STEPS_SHOWN * asked, *(number * 5 // 4 for number in found), 2))

    def at(tokens: int) -> Workload:
        if is_training:
            return replace(workload, sequence_tokens=tokens)
        return replace(workload, prompt_tokens=tokens - new)

    return Curve(
        name="tokens a sequence",
        points=_points(report, at, new + 1, most),
        asked=asked,
        stops=_stops(report, lambda fit: fit.max_context, most),
    )


def _batch(report: Report) -> Curve:
    workload = report.workload
    found = [fit.max_batch for fit in report.fit if fit.max_batch is not None and _is_drawn(report, fit)]
    most = min(_MOST, max(_BATCH, 2 * workload.batch_size, *(number * 5 // 4 for number in found), 1))
    return Curve(
        name="sequences at once",
        points=_points(report, lambda number: replace(workload, batch_size=number), 1, most),
        asked=workload.batch_size,
        stops=_stops(report, lambda fit: fit.max_batch, most),
    )


def _points(
    report: Report, at: Callable[[int], Workload], least: int, most: int
) -> tuple[tuple[int, int, int, int], ...]:
    values: Iterable[int] = dict.fromkeys(least + (most - least) * step // _POINTS for step in range(_POINTS + 1))
    made = ((value, estimate(report.facts, at(value))) for value in values)
    return tuple((value, one.low_bytes, one.total_bytes, one.high_bytes) for value, one in made)


def _stops(report: Report, answer: Callable[[Fit], int | None], most: int) -> tuple[Stop, ...]:
    """Where each device ends, for those that end within the picture."""
    found = ((at, answer(fit)) for at, fit in enumerate(report.fit) if _is_drawn(report, fit))
    return tuple(Stop(limit=at, value=value) for at, value in found if value and value < most)


def _is_drawn(report: Report, fit: Fit) -> bool:
    """Whether the answer is about the curve that is drawn: not where devices share the model in a way that the workload did not ask for."""
    return fit.split is None or is_split(report.workload)


def _device_name(fit: Fit) -> str:
    count = f" × {fit.hardware.count}, each" if fit.hardware.count > 1 else ""
    return clean(fit.hardware.name) + count
