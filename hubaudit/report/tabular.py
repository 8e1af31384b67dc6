"""The report as a row: CSV for spreadsheets, Markdown for pages."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

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
    shape_line,
    stage_rows,
    stage_title,
    title,
    workload_line,
)
from hubaudit.report.totals import least, total_band, total_of
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hubaudit.errors import HubauditError
    from hubaudit.types import Report

COLUMNS = (
    "repo_id", "commit", "architecture", "model_type", "parameters", "active_parameters", "layers", "hidden_size", "attention_heads",
    "kv_heads", "head_dim", "vocab_size", "max_positions", "dtype", "quantization", "format", "file_bytes", "resident_bytes", "mode",
    "batch_size", "prompt_tokens", "new_tokens", "weights_bytes", "kv_cache_bytes", "total_bytes", "low_bytes", "high_bytes", "omitted",
    "fit", "findings", "error",
)  # fmt: skip
#: What spreadsheets take for the start of a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def to_csv(rows: Iterable[Report | tuple[str, HubauditError]]) -> str:
    """One line a subject; a subject that could not be audited has its error in the last column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = _failed(*row) if isinstance(row, tuple) else _values(row)
        writer.writerow([csv_cell(values.get(name)) for name in COLUMNS])
    return text.getvalue()


def to_markdown(report: Report) -> str:
    """The report as a section of a Markdown page."""
    lines = [f"## {escaped(title(report))}", "", escaped(identity(report.facts)), ""]
    said = (*parameter_lines(report.facts), size_line(report.facts), shape_line(report.facts))
    lines += [f"- {escaped(line)}" for line in said if line]
    for head, columns, rows in (
        ("Parts", PARTS_HEAD, part_rows(report.facts)),
        ("Weights in the repository", WEIGHTS_HEAD, weights_rows(report.facts)),
    ):
        lines += ["", f"### {head}", "", *table(columns, rows)] if rows else []
    lines += ["", f"### Memory ({escaped(workload_line(report.workload))})", ""]
    lines += table(
        ("component", "size", "exactness", "detail"),
        [(part.id, format_bytes(part.bytes), part.exactness, note_of(part)) for part in report.estimate.components]
        + [
            (
                "**total**",
                f"**{total_of(report.estimate)}**",
                "",
                total_band(report.estimate),
            )
        ],
    )
    if report.estimate.phases:
        lines += [
            "",
            f"### {PHASES_HEAD[report.workload.mode]}",
            "",
            *table(("phase", "size", ""), phase_rows(report.estimate)),
        ]
    if report.estimate.devices:
        lines += ["", "### Devices", "", *table(DEVICE_HEAD, device_rows(report.estimate))]
    if report.estimate.stages:
        lines += ["", f"### {stage_title(report.estimate)}", "", *table(STAGE_HEAD, stage_rows(report))]
    if report.fit:
        lines += ["", "### Does it fit?", "", *table(FIT_HEAD, map(fit_cells, report.fit)), ""]
        lines += [f"- {escaped(note)}" for note in fit_notes(report)]
    if report.variants:
        lines += ["", "### The same workload with other weights", ""]
        lines += table(
            ("weights", "bits × parameters", "loaded", "total"),
            [
                (
                    variant.quant or variant.dtype,
                    format_bytes(variant.plain_bytes),
                    format_bytes(variant.weights_bytes),
                    least(variant.total_bytes, report.estimate),
                )
                for variant in report.variants
            ],
        )
    notes = [
        *report.estimate.assumptions,
        *report.facts.missing,
        *(f"{part.id} left out: {part.reason}" for part in report.estimate.omitted),
    ]
    lines += ["", *(f"- {escaped(note)}" for note in dict.fromkeys(notes))] if notes else []
    if report.findings:
        lines += ["", "### Findings", ""]
        lines += [
            f"- **{finding.severity}** `{finding.rule}`: {escaped(finding.message)}" for finding in report.findings
        ]
    return "\n".join(lines) + "\n"


def error_to_markdown(name: str, error: HubauditError) -> str:
    """A subject that could not be audited."""
    return f"## {escaped(clean(name))}\n\n**not audited** ({error.kind}): {escaped(clean(error.message))}\n"


def _values(report: Report) -> dict[str, object]:
    facts, workload, estimate = report.facts, report.workload, report.estimate
    parts = {part.id: part.bytes for part in estimate.components}
    count = facts.parameters
    return {
        "repo_id": report.subject.repo_id,
        "commit": report.subject.commit,
        "architecture": facts.architecture,
        "model_type": facts.model_type,
        "parameters": None if count is None else count.total,
        "active_parameters": None if count is None else count.active,
        **{
            name: getattr(facts, name).value
            for name in (
                "layers",
                "hidden_size",
                "attention_heads",
                "kv_heads",
                "head_dim",
                "vocab_size",
                "max_positions",
                "dtype",
            )
        },
        "quantization": None if facts.quantization is None else facts.quantization.method,
        "format": facts.format,
        "file_bytes": facts.file_bytes,
        "resident_bytes": facts.resident_bytes,
        "mode": workload.mode,
        "batch_size": workload.batch_size,
        "prompt_tokens": workload.prompt_tokens,
        "new_tokens": workload.new_tokens,
        "weights_bytes": parts.get("weights"),
        "kv_cache_bytes": parts.get("kv_cache"),
        "total_bytes": estimate.total_bytes,
        "low_bytes": estimate.low_bytes,
        "high_bytes": estimate.high_bytes,
        "omitted": "; ".join(part.id for part in estimate.omitted) or None,
        "fit": "; ".join(f"{fit_cells(fit)[0]}: {fit.verdict}" for fit in report.fit) or None,
        "findings": len(report.findings),
    }


def _failed(name: str, error: HubauditError) -> dict[str, object]:
    return {"repo_id": name, "error": f"{error.kind}: {error.message}"}


def csv_cell(value: object) -> object:
    """A value made safe for spreadsheets: text that they would take for a formula is quoted, control characters are escaped."""
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table; a cell that begins in bold is the writer's own markup, all others are escaped."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell if cell.startswith("**") else escaped(cell) for cell in row) + " |"


def escaped(text: str) -> str:
    """Text from a repository made safe for Markdown: nothing of it is markup."""
    text = clean(text)
    for character in "\\`*_[]<>|#":
        text = text.replace(
            character, f"\\{character}" if character not in "<>" else {"<": "&lt;", ">": "&gt;"}[character]
        )
    return text
