"""The exact figures beside those by formula: rows of one table, and their wire form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Estimate, ExactMemory, Report

SIDE_BY_SIDE = ("component", "exact", "formula", "formula is")
PHASES = ("phase", "max allocated", "max reserved", "at its end")
FITS = ("device", "for tensors", "needs", "expandable", "runs")
_CONTEXT = "cuda_context"


def side_by_side(exact: ExactMemory, formula: Estimate) -> Iterator[tuple[str, str, str, str]]:
    """One row a component; then the peaks. The formula's total is without the CUDA context, which the allocator does not hold."""
    by_formula = {part.id: part.bytes for part in formula.components if part.id != _CONTEXT}
    traced = {part.id: part.bytes for part in exact.estimate.components}
    for name in dict.fromkeys((*by_formula, *traced)):
        yield name, _size(traced.get(name)), _size(by_formula.get(name)), _off(by_formula.get(name), traced.get(name))
    total = sum(by_formula.values())
    for name, ours in (("max allocated", exact.peak_allocated_bytes), ("max reserved", exact.peak_reserved_bytes)):
        yield name, _size(ours), _size(total), _off(total, ours)


def exact_phases(exact: ExactMemory) -> Iterator[tuple[str, str, str, str]]:
    """One row a phase."""
    for phase in exact.phases:
        yield (
            phase.name,
            _size(phase.peak_allocated_bytes),
            _size(phase.peak_reserved_bytes),
            _size(phase.allocated_bytes),
        )


def fit_rows(exact: ExactMemory) -> Iterator[tuple[str, str, str, str, str]]:
    """One row a device: what it has for tensors, what the run needs at least, and whether it runs."""
    for fit in exact.fits:
        runs = "yes" if fit.fits else "with expandable segments" if fit.fits_expandable else "no"
        yield (
            fit.hardware.name,
            _size(fit.capacity_bytes),
            _size(fit.needed_bytes),
            _size(fit.needed_expandable_bytes),
            runs,
        )


def to_wire(report: Report) -> dict[str, Any] | None:
    """The exact block; ``null`` where it was not asked for."""
    exact = report.exact
    if exact is None:
        return None
    return {
        "label": exact.label,
        "fidelity": exact.estimate.fidelity,
        "max_allocated_bytes": exact.peak_allocated_bytes,
        "max_reserved_bytes": exact.peak_reserved_bytes,
        "peak_phase": exact.estimate.peak_phase,
        "components": [
            {"id": part.id, "category": part.category, "bytes": part.bytes} for part in exact.estimate.components
        ],
        "phases": [{name: getattr(phase, name) for name in phase.__slots__} for phase in exact.phases],
        "fit": [
            {
                "gpu": fit.hardware.name,
                "usable_bytes": fit.hardware.usable_bytes,
                "capacity_bytes": fit.capacity_bytes,
                "fits": fit.fits,
                "fits_expandable_segments": fit.fits_expandable,
                "needed_bytes": fit.needed_bytes,
                "needed_expandable_segments_bytes": fit.needed_expandable_bytes,
            }
            for fit in exact.fits
        ],
        "assumptions": list(exact.estimate.assumptions),
        "omitted": [{"id": part.id, "reason": part.reason} for part in exact.estimate.omitted],
    }


def _size(size_bytes: int | None) -> str:
    return "" if size_bytes is None else format_bytes(size_bytes)


def _off(formula_bytes: int | None, exact_bytes: int | None) -> str:
    if formula_bytes is None or not exact_bytes:
        return ""
    return f"{100 * (formula_bytes / exact_bytes - 1):+.2f} %"
