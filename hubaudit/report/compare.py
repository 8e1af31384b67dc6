"""Models side by side: the same rows for each, as text of 80 columns, Markdown and JSON, and what changed where two are one repository."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from hubaudit.report.changes import Change, changes
from hubaudit.report.json_text import json_text
from hubaudit.report.phrases import clean, fit_cells, plan_line
from hubaudit.report.tabular import escaped, table
from hubaudit.report.totals import total_of
from hubaudit.report.wire import error_to_wire, head, to_wire
from hubaudit.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hubaudit.errors import HubauditError
    from hubaudit.types import ModelFacts, Report, RepoSnapshot

_COLUMNS = 80
_BESIDE = 3
_NAME_COLUMN = 16
_MOST_CHANGES = 60
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One of the models: what was read and made of it, or why it could not be audited."""

    name: str
    audited: tuple[RepoSnapshot, Report] | None = None
    error: HubauditError | None = None


def rows(subjects: Sequence[Compared]) -> list[tuple[str, ...]]:
    """A row for each thing to compare, its name first, then a cell for each model; rows that are empty for all are left out."""
    found: list[tuple[str, ...]] = []
    for section in zip(*(_sections(one) for one in subjects), strict=True):
        names = dict.fromkeys(name for one in section for name in one)
        found += [(name, *(one.get(name, "") for one in section)) for name in names]
    return [row for row in found if any(row[1:])]


def changed(subjects: Sequence[Compared]) -> list[tuple[str, str, tuple[Change, ...]]]:
    """For neighbours that are one repository at two revisions: both names, and what changed from the first to the second."""
    found = []
    for first, second in pairwise(subjects):
        if first.audited and second.audited and first.audited[0].repo_id == second.audited[0].repo_id:
            found.append((_title(first), _title(second), changes(first.audited, second.audited)))
    return found


def to_text(subjects: Sequence[Compared]) -> str:
    """Columns side by side, three models at a time, then the changes."""
    lines: list[str] = []
    all_rows = rows(subjects)
    for start in range(0, len(subjects), _BESIDE):
        part = subjects[start : start + _BESIDE]
        lines += _block(part, [(row[0], *row[1 + start : 1 + start + len(part)]) for row in all_rows])
        lines.append("")
    for before, after, found in changed(subjects):
        lines += [*wrap(f"What changed from {before} to {after}", _COLUMNS), *_changes(found), ""]
    return "\n".join(lines[:-1]) + "\n"


def to_markdown(subjects: Sequence[Compared]) -> str:
    """The same as a page."""
    lines = list(table(("", *(escaped(_title(one)) for one in subjects)), rows(subjects)))
    for before, after, found in changed(subjects):
        lines += ["", f"### What changed from {escaped(before)} to {escaped(after)}", ""]
        said = [(one.kind, one.name, one.before or "–", one.after or "–") for one in found]
        lines += list(table(("kind", "what", "before", "after"), said)) if said else ["Nothing."]
    return "\n".join(lines) + "\n"


def to_json(subjects: Sequence[Compared]) -> str:
    """Every model's whole document, and the changes; names are those of the wire contract."""
    document: dict[str, Any] = {key: value for key, value in head("").items() if key != "subject"}
    document["subjects"] = [_wire(one) for one in subjects]
    document["changes"] = [
        {
            "from": before,
            "to": after,
            "changes": [{name: getattr(one, name) for name in one.__slots__} for one in found],
        }
        for before, after, found in changed(subjects)
    ]
    return json_text(document, indent=2) + "\n"


def _wire(one: Compared) -> dict[str, Any]:
    if one.audited is not None:
        return to_wire(one.audited[1])
    return error_to_wire(one.name, one.error) if one.error is not None else head(one.name)


def _title(one: Compared) -> str:
    """The repository and the revision as it was asked for, else the commit."""
    if one.audited is None:
        return clean(one.name)
    subject = one.audited[1].subject
    at = subject.revision or (subject.commit or "")[:12]
    return clean(f"{subject.repo_id}@{at}" if at else subject.repo_id)


def _sections(one: Compared) -> tuple[dict[str, str], ...]:
    """Its cells, in sections that follow each other: what cannot be audited, facts, components, sums, devices and findings."""
    if one.audited is None:
        return ({"not audited": "" if one.error is None else clean(one.error.message)}, {}, {}, {}, {}, {})
    report = one.audited[1]
    made = report.estimate
    return (
        {},
        _fact_cells(report.facts),
        {part.id.replace("_", " "): format_bytes(part.bytes) for part in made.components},
        {"total": total_of(made), "total, at most": "" if made.omitted else format_bytes(made.high_bytes)},
        _fit_cells(report),
        {"findings": str(len(report.findings))},
    )


def _fact_cells(facts: ModelFacts) -> dict[str, str]:
    count, moe = facts.parameters, facts.moe
    said = {
        "parameters": _UNKNOWN if count is None else f"{count.total:,}",
        "active": "" if count is None or count.active in (None, count.loaded) else format_count(count.active or 0),
        "architecture": facts.architecture or facts.model_type or facts.library or "",
        "layers": _number(facts.layers.value),
        "hidden size": _number(facts.hidden_size.value),
        "heads": _number(facts.attention_heads.value),
        "kv heads": _number(facts.kv_heads.value),
        "head dim": _number(facts.head_dim.value),
        "experts": "" if moe is None else f"{moe.experts_per_token.value or '?'} of {moe.experts.value or '?'}",
        "vocabulary": _number(facts.vocab_size.value),
        "context": _number(facts.max_positions.value),
        "cache layout": plan_line(facts) or "",
        "dtype": facts.dtype.value or "",
        "quantization": "" if facts.quantization is None else facts.quantization.method,
        "on disk": "" if facts.file_bytes is None else format_bytes(facts.file_bytes),
    }
    return {name: clean(words) for name, words in said.items()}


def _fit_cells(report: Report) -> dict[str, str]:
    said = {}
    for fit in report.fit:
        device, _, verdict, _, batch, context = fit_cells(fit)
        split = f" with {fit.split}" if fit.split else ""
        is_known = verdict not in ("no", "unknown")
        said[device] = f"{verdict}{split}: batch {batch}, context {context}" if is_known else verdict
    return said


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _block(subjects: Sequence[Compared], block_rows: list[tuple[str, ...]]) -> Iterator[str]:
    """One table; cells that are too long go on below."""
    width = (_COLUMNS - _NAME_COLUMN) // len(subjects) - 2
    heads = ("", *(_title(one) for one in subjects))
    yield from _row(heads, width)
    yield "-" * min(_COLUMNS, _NAME_COLUMN + len(subjects) * (width + 2) - 2)
    for row in block_rows:
        if any(row[1:]):
            yield from _row(row, width)


def _row(row: tuple[str, ...], width: int) -> Iterator[str]:
    cells = [wrap(row[0], _NAME_COLUMN - 2) or [""]]
    cells += [wrap(cell, width) or [""] for cell in row[1:]]
    for at in range(max(map(len, cells))):
        words = [cell[at] if at < len(cell) else "" for cell in cells]
        line = words[0].ljust(_NAME_COLUMN) + "  ".join(word.ljust(width) for word in words[1:])
        yield line.rstrip()


def _changes(found: tuple[Change, ...]) -> Iterator[str]:
    if not found:
        yield "  nothing that an audit reads"
    kind = ""
    for one in found[:_MOST_CHANGES]:
        if one.kind != kind:
            kind = one.kind
            yield f"  {kind}"
        yield from wrap(_said(one), _COLUMNS, initial_indent="    ", subsequent_indent="      ")
    if len(found) > _MOST_CHANGES:
        yield f"  and {len(found) - _MOST_CHANGES} more; --format json has them all"


def _said(one: Change) -> str:
    name = clean(one.name)
    if one.before is None:
        return f"+ {name}: {clean(one.after or '')}"
    if one.after is None:
        return f"- {name}: {clean(one.before)}"
    return f"{name}: {clean(one.before)} → {clean(one.after)}"
