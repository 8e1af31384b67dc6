"""The report where GitHub shows it: annotations on standard output, and the page that a step adds to the summary of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.report.phrases import FIT_HEAD, clean, fit_cells, title, workload_line
from hubaudit.report.sarif import file_of
from hubaudit.report.tabular import error_to_markdown, escaped, table
from hubaudit.report.totals import total_band, total_of
from hubaudit.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hubaudit.errors import HubauditError
    from hubaudit.types import Estimate, Fit, Report

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
_RANK = {"error": 0, "warning": 1, "notice": 2}
#: GitHub shows ten annotations of a kind for a step and drops the rest (docs.github.com, "usage limits" of workflow commands).
_SHOWN = 10
_BAR_CELLS = 40
#: GitHub takes 1 MiB of a step's summary.
_MAX_SUMMARY_BYTES = 1_000_000


def to_annotations(results: Sequence[Report | tuple[str, HubauditError]]) -> str:
    """One workflow command for each finding, each device that it does not fit, and each subject that could not be audited, the worst first."""
    rows = sorted(_annotations(results), key=lambda row: _RANK[row[0]])
    kept: list[str] = []
    for kind in _RANK:
        own = [line for name, line in rows if name == kind]
        kept += own[:_SHOWN]
        if len(own) > _SHOWN:
            kept.append(f"{len(own) - _SHOWN} more of kind {kind} are in the summary")
    return "".join(f"{line}\n" for line in kept)


def to_summary(results: Sequence[Report | tuple[str, HubauditError]]) -> str:
    """A page of Markdown: a row for each model, what the memory goes to as a bar, whether it fits, and the findings."""
    lines = ["# hubaudit", ""]
    reports = [result for result in results if not isinstance(result, tuple)]
    lines += table(("model", "parameters", "weights", "total", "band", "fits"), map(_row, reports)) if reports else ()
    for result in results:
        if isinstance(result, tuple):
            lines += ["", error_to_markdown(*result)]
        else:
            lines += [
                "",
                f"## {escaped(title(result))}",
                "",
                f"{escaped(workload_line(result.workload))}",
                "",
                *_bar(result.estimate),
                *_fit(result),
                *_findings(result),
            ]
    text = "\n".join(lines) + "\n"
    while len(text.encode()) > _MAX_SUMMARY_BYTES:
        text = text[: len(text) * 9 // 10] + "\n\n(cut: the whole report is longer than GitHub takes)\n"
    return text


def _annotations(results: Sequence[Report | tuple[str, HubauditError]]) -> Iterator[tuple[str, str]]:
    for result in results:
        if isinstance(result, tuple):
            name, error = result
            yield "error", command("error", {"title": "hubaudit"}, f"{name}: {error.message}")
            continue
        for fit in result.fit:
            if fit.verdict in ("no", "unknown"):
                yield "warning", _does_not_fit(result.subject.repo_id, fit)
        for finding in result.findings:
            kind = _COMMANDS[finding.severity]
            properties = {"file": file_of(finding, result.subject)} if result.subject.source == "local" else {}
            if finding.line is not None and properties:
                properties["line"] = str(finding.line)
            yield (
                kind,
                command(
                    kind,
                    {**properties, "title": f"hubaudit: {finding.rule}"},
                    f"{result.subject.repo_id}: {finding.message} ({finding.help})",
                ),
            )


def _does_not_fit(name: str, fit: Fit) -> str:
    if fit.verdict == "no" and fit.headroom_bytes is not None:
        words = f"{name} on {fit.hardware.name}: no, {format_bytes(fit.headroom_bytes)} left"
        return command("warning", {"title": "hubaudit: does not fit"}, words)
    words = f"{name} on {fit.hardware.name}: unknown" + (f", {fit.reason}" if fit.reason else "")
    return command("warning", {"title": "hubaudit: not known whether it fits"}, words)


def command(kind: str, properties: dict[str, str], message: str) -> str:
    """A workflow command. What would end it, or begin another, is escaped as actions/toolkit does (packages/core/src/command.ts)."""
    told = ",".join(f"{key}={_escaped_property(value)}" for key, value in properties.items())
    return f"::{kind} {told}::{_escaped_data(message)}"


def _escaped_data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped_data(text).replace(":", "%3A").replace(",", "%2C")


def _row(report: Report) -> tuple[str, ...]:
    count, estimate = report.facts.parameters, report.estimate
    weights = next((part.bytes for part in estimate.components if part.id == "weights"), None)
    return (
        title(report),
        "unknown" if count is None else format_count(count.total),
        "unknown" if weights is None else format_bytes(weights),
        total_of(estimate),
        total_band(estimate) or "–",
        ", ".join(f"{fit.hardware.name}: {fit.verdict}" for fit in report.fit) or "–",
    )


def _bar(estimate: Estimate) -> Iterator[str]:
    """What the memory goes to: a line for each part, as long as its share."""
    if not estimate.total_bytes:
        return
    longest = max((len(part.id) for part in estimate.components), default=0)
    yield "```"
    for part in estimate.components:
        cells = (part.bytes * _BAR_CELLS + estimate.total_bytes // 2) // estimate.total_bytes
        yield f"{part.id:<{longest}} {'█' * cells:<{_BAR_CELLS}} {format_bytes(part.bytes):>10}"
    yield "```"


def _fit(report: Report) -> Iterator[str]:
    if report.fit:
        yield ""
        yield from table(FIT_HEAD, map(fit_cells, report.fit))


def _findings(report: Report) -> Iterator[str]:
    if not report.findings:
        yield ""
        yield "No findings."
        return
    yield ""
    rows = [
        (one.severity, one.rule, one.where if one.line is None else f"{one.where}:{one.line}", one.message, one.help)
        for one in report.findings
    ]
    yield from table(("severity", "rule", "where", "what", "what to do"), rows)
