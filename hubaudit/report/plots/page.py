"""The whole picture: one SVG for one report or several, and the same within an HTML page that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hubaudit.report.phrases import (
    DEVICE_HEAD,
    FIT_HEAD,
    clean,
    device_rows,
    fit_cells,
    fit_notes,
    title,
    workload_line,
)
from hubaudit.report.plots.data import KINDS, Pictured, pictured
from hubaudit.report.plots.panels import WIDTH, bars_panel, curve_panel
from hubaudit.report.plots.shapes import FONT, Theme, cut, style, text
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hubaudit.types import Report

_MARGIN = 20
_APART = 26
_PAGE_STYLE = (
    "body{margin:2rem auto;max-width:52rem;padding:0 1rem;background:#fff;color:#1f2328;font:15px/1.45 " + FONT + "}"
    "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:.5rem 0 1.5rem}"
    "th,td{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid #d8dee4}"
    "th:first-child,td:first-child{text-align:left}h2{font-size:1.05rem}"
    "@media (prefers-color-scheme: dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#2f353d}}"
)


def to_svg(reports: Sequence[Report], theme: Theme = "auto") -> str:
    """All reports, one below the other.

    Args:
        reports: what is drawn; every point is asked of the estimator.
        theme: fixed colours, or those that the reader's system prefers.
    """
    return _svg([(report, pictured(report)) for report in reports], theme)


def to_html(reports: Sequence[Report]) -> str:
    """A page with the pictures, and their numbers as tables."""
    drawn = [(report, pictured(report)) for report in reports]
    sections = "".join(_section(report, shown) for report, shown in drawn)
    names = ", ".join(report.subject.repo_id for report in reports)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>hubaudit: {escape(clean(title(reports[0]) if len(reports) == 1 else names))}</title>"
        f"<style>{_PAGE_STYLE}</style></head><body>\n{sections}</body></html>\n"
    )


def _svg(drawn: Sequence[tuple[Report, Pictured]], theme: Theme) -> str:
    parts: list[str] = []
    y = float(_MARGIN)
    for report, shown in drawn:
        more, y = _one(report, shown, y)
        parts += more
    height = y + _MARGIN
    names = escape(", ".join(title(report) for report, _ in drawn))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_MARGIN} 0 {WIDTH + 2 * _MARGIN} {height:.0f}" '
        f'width="{WIDTH + 2 * _MARGIN}" height="{height:.0f}" font-family="{FONT}" role="img" '
        f'aria-label="Memory of {names}">{style(theme)}'
        f'<rect x="{-_MARGIN}" y="0" width="{WIDTH + 2 * _MARGIN}" height="{height:.0f}" class="f-bg"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _one(report: Report, shown: Pictured, y: float) -> tuple[list[str], float]:
    parts = [
        text(0, y + 16, cut(title(report), 80), size=17, bold=True),
        text(0, y + 36, cut(workload_line(report.workload), 110), role="dim"),
    ]
    omitted = ", ".join(part.id for part in report.estimate.omitted)
    if omitted:
        parts.append(text(0, y + 54, cut(f"not in it: {omitted}", 110), role="limit"))
        y += 18
    panel, y = bars_panel(shown, y + 56)
    parts += panel
    for curve in shown.curves:
        panel, y = curve_panel(curve, shown.limits, y + _APART)
        parts += panel
    return parts, y + _APART


def _section(report: Report, shown: Pictured) -> str:
    present = [kind for kind in KINDS if any(kind == one for bar in shown.bars for one, _ in bar.parts)]
    rows = [
        (bar.name, *(format_bytes(dict(bar.parts).get(kind, 0)) for kind in present), format_bytes(bar.total_bytes))
        for bar in shown.bars
    ]
    made = [_svg([(report, shown)], "auto"), "<h2>Numbers</h2>"]
    made.append(_table(("weights", *(KINDS[kind] for kind in present), "total"), rows))
    if report.estimate.devices:
        made.append(_table(DEVICE_HEAD, device_rows(report.estimate)))
    if report.fit:
        made += [_table(FIT_HEAD, map(fit_cells, report.fit)), _list(fit_notes(report))]
    made.append(_list([*report.estimate.assumptions, *report.facts.missing]))
    return "\n".join(made) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _cells(tag: str, words: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(clean(word))}</{tag}>" for word in words)


def _list(words: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(clean(word))}</li>" for word in dict.fromkeys(words))
    return f"<ul>{items}</ul>" if items else ""
