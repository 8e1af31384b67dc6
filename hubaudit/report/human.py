"""The report for people: rich tables that read well at 80 columns, without colour, and piped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hubaudit.report.bar import bar_lines
from hubaudit.report.exact import FITS, PHASES, SIDE_BY_SIDE, exact_phases, fit_rows, side_by_side
from hubaudit.report.explain import explain
from hubaudit.report.holdings import PARTS_HEAD, WEIGHTS_HEAD, part_rows, size_line, weights_rows
from hubaudit.report.phrases import (
    DEVICE_HEAD,
    FIT_HEAD,
    PHASES_HEAD,
    STAGE_HEAD,
    clean,
    device_rows,
    fit_cells,
    fit_notes,
    identity,
    note_of,
    parameter_lines,
    phase_rows,
    plan_line,
    shape_line,
    stage_rows,
    stage_title,
    title,
    workload_line,
)
from hubaudit.report.totals import least, total_band, total_of
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from hubaudit.types import Finding, Report

_SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_VERDICT_STYLE = {"fits": "green", "tight": "yellow", "no": "red", "unknown": "cyan"}


def render(report: Report, *, with_explanation: bool = False) -> RenderableType:
    """Everything that a person needs of one report."""
    parts: list[RenderableType] = [Text(title(report), style="bold"), _indented(_facts(report)), *_holdings(report)]
    parts += [_head("Memory"), _indented(Text(clean(workload_line(report.workload)), style="dim"))]
    parts.append(_indented(_components(report)))
    bars = bar_lines(report)
    parts += [Text(""), _indented(Text("\n".join(bars), style="dim"))] if bars else []
    parts += _exact(report)
    if report.estimate.phases:
        parts += [_head(PHASES_HEAD[report.workload.mode]), _indented(_phases(report))]
    parts += _several(report)
    if report.fit:
        parts += [_head("Does it fit?"), _indented(_fit(report))]
        remarks = [Text(note) for note in fit_notes(report)]
        parts += [_bullets(remarks)] if remarks else []
    if report.variants:
        parts += [_head("The same workload with other weights"), _indented(_variants(report))]
    notes = [
        *(report.exact.estimate.assumptions if report.exact else ()),
        *report.estimate.assumptions,
        *report.facts.missing,
    ]
    notes += [f"{part.id} left out: {part.reason}" for part in report.estimate.omitted]
    if any(variant.note for variant in report.variants):
        notes.append(next(variant.note for variant in report.variants if variant.note) or "")
    if notes:
        parts += [_head("Notes"), _bullets(Text(clean(note)) for note in dict.fromkeys(notes))]
    if report.findings:
        parts += [_head("Findings"), _bullets(_finding(finding) for finding in report.findings)]
    if with_explanation:
        parts += [_head("How each number came about"), _explanation(report)]
    return Group(*parts)


def _several(report: Report) -> list[RenderableType]:
    """What each of several devices holds, or would hold if they shared the run otherwise."""
    made: list[RenderableType] = []
    if report.estimate.devices:
        made += [_head("Devices"), _indented(_numbers(DEVICE_HEAD, device_rows(report.estimate)))]
    if report.estimate.stages:
        made += [_head(stage_title(report.estimate)), _indented(_numbers(STAGE_HEAD, stage_rows(report)))]
    return made


def _facts(report: Report) -> Text:
    plan = plan_line(report.facts)
    lines = [
        identity(report.facts),
        *parameter_lines(report.facts),
        size_line(report.facts),
        shape_line(report.facts),
    ]
    lines += [f"cache layout: {clean(plan)}"] if plan else []
    return Text("\n".join(line for line in lines if line))


def _holdings(report: Report) -> list[RenderableType]:
    """Parts, and weights that are not counted, where there are any."""
    made: list[RenderableType] = []
    for head, columns, rows in (
        ("Parts", PARTS_HEAD, part_rows(report.facts)),
        ("Weights in the repository", WEIGHTS_HEAD, weights_rows(report.facts)),
    ):
        if rows:
            made += [_head(head), _indented(_listed(columns, rows))]
    return made


def _listed(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """A table whose first and last columns are names, which are folded where they are long, and whose others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for at, name in enumerate(columns):
        is_name = at in (0, len(columns) - 1)
        table.add_column(name, justify="left" if is_name else "right", no_wrap=not is_name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _components(report: Report) -> Table:
    table = _table("component", "size", "is", "band or detail")
    for part in report.estimate.components:
        table.add_row(part.id, format_bytes(part.bytes), part.exactness, note_of(part))
    table.add_section()
    estimate = report.estimate
    table.add_row(
        Text("total", style="bold"),
        Text(total_of(estimate), style="bold"),
        "",
        total_band(estimate),
    )
    return table


def _numbers(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """A table of numbers to the right of their names."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _exact(report: Report) -> list[RenderableType]:
    """Exact beside formula, the run's phases, and what it needs of each device; or why there is no such answer."""
    if report.exact_unknown is not None:
        return [_head("Exact"), _indented(Text(clean(f"not known: {report.exact_unknown}")))]
    if report.exact is None:
        return []
    exact, formula = report.exact, report.estimate
    made: list[RenderableType] = [_head("Exact, and by formula"), _indented(Text(clean(exact.label), style="dim"))]
    rows = list(side_by_side(exact, formula))
    made.append(_indented(_figures(SIDE_BY_SIDE, rows)))
    made += [_head("Phases of the run"), _indented(_figures(PHASES, list(exact_phases(exact))))]
    if exact.fits:
        made += [_head("Does it run there?"), _indented(_figures(FITS, list(fit_rows(exact))))]
    return made


def _figures(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    """A name, then numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left", no_wrap=bool(at))
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _phases(report: Report) -> Table:
    table = _table("phase", "size", "")
    for name, size, mark in phase_rows(report.estimate):
        table.add_row(Text(name, style="bold" if mark else ""), size, mark)
    return table


def _variants(report: Report) -> Table:
    table = _table("weights", "bits × params", "loaded", "total")
    for variant in report.variants:
        name = f"{variant.quant} ({variant.dtype} kept)" if variant.quant else variant.dtype
        table.add_row(
            name,
            format_bytes(variant.plain_bytes),
            format_bytes(variant.weights_bytes),
            least(variant.total_bytes, report.estimate),
        )
    return table


def _fit(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(FIT_HEAD[0])
    for name in FIT_HEAD[1:]:
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for fit in report.fit:
        name, usable, verdict, *rest = fit_cells(fit)
        table.add_row(name, usable, Text(verdict, style=_VERDICT_STYLE[fit.verdict]), *rest)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for name in others:
        is_size = name in ("size", "bits × params", "loaded", "total")
        table.add_column(name, justify="right" if is_size else "left", no_wrap=is_size)
    return table


def _head(text: str) -> Text:
    return Text("\n" + text, style="bold")


def _indented(content: RenderableType, columns: int = 2) -> Padding:
    return Padding(content, (0, 0, 0, columns), expand=False)


def _bullets(lines: Iterable[Text]) -> Table:
    """Lines that hang under their dash when they wrap."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        grid.add_row("  -", line)
    return grid


def _finding(finding: Finding) -> Text:
    line = Text(f"{finding.severity}: ", style=_SEVERITY_STYLE[finding.severity])
    line.append(clean(finding.message), style="default")
    return line.append(f"  [{clean(finding.where)}]", style="dim")


def _explanation(report: Report) -> Group:
    """Each line keeps its own indentation where it wraps."""
    lines = list(explain(report))
    return Group(*(_indented(Text(line.lstrip()), 2 + len(line) - len(line.lstrip())) for line in lines))
