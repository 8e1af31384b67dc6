"""The memory as a bar of characters, which reads without colour: the components' shares, or how full each device gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.fit.serving import budget_bytes
from hubaudit.report.phrases import clean
from hubaudit.report.plots.data import KINDS, by_category

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.types import Category, Fit, Report

_WIDTH = 40
_NAME = 20
#: A sign for each category that says something; the small rest shares one.
_SIGNS: dict[Category, str] = {
    "Parameter": "█", "Buffer": "█", "Gradient": "▚", "OptimizerState": "▞", "KVCache": "▓", "Activation": "▒", "Workspace": "░",
    "Context": "░", "Fragmentation": "░",
}  # fmt: skip
_FREE, _TOO_MUCH = "·", "▶"


def bar_lines(report: Report) -> list[str]:
    """One bar for the whole, or one for each device that was named, and a key."""
    parts = by_category(report.estimate)
    total = sum(size for _, size in parts)
    if not total:
        return []
    if not report.fit:
        return [_stack(parts, total, _WIDTH), _key(parts)]
    return [*(_device(report, fit, parts) for fit in report.fit), _key(parts)]


def _device(report: Report, fit: Fit, parts: Sequence[tuple[Category, int]]) -> str:
    usable = budget_bytes(report.workload.runtime, fit.hardware.usable_bytes)
    used = report.estimate.total_bytes if fit.headroom_bytes is None else usable - fit.headroom_bytes
    name = clean(fit.hardware.name)
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}~"
    cells = min(_WIDTH, -(-used * _WIDTH // max(1, usable)))
    # Where the split is the verdict's own choice, the parts are not those of one device; the sum is.
    own = parts if sum(size for _, size in parts) == used else (("Parameter", used),)
    drawn = _stack(own, sum(size for _, size in own), cells)
    drawn = drawn[:-1] + _TOO_MUCH if used > usable else drawn + _FREE * (_WIDTH - cells)
    share = f"{used * 100 // max(1, usable)} %"
    return f"{name:<{_NAME}} {drawn} {f'at least {share}' if report.estimate.omitted else share}"


def _stack(parts: Sequence[tuple[Category, int]], total: int, cells: int) -> str:
    """So many signs, each part's end rounded to the nearest; the signs always add up."""
    drawn, reached = "", 0
    for kind, size in parts:
        reached += size
        drawn += _SIGNS[kind] * ((2 * reached * cells + total) // (2 * total) - len(drawn))
    return drawn


def _key(parts: Sequence[tuple[Category, int]]) -> str:
    present = [kind for kind, _ in parts]
    words: dict[str, list[str]] = {}
    for kind in present:
        words.setdefault(_SIGNS[kind], []).append(KINDS[kind])
    return "  ".join(f"{sign} {' + '.join(names)}" for sign, names in words.items())
