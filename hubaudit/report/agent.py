"""The report for programs that read text: tab-separated, one fact a line, nothing cut, wrapped or coloured, as hf's agent mode has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.report.phrases import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hubaudit.errors import HubauditError
    from hubaudit.types import Estimate, ModelFacts, Report

_FACTS = ("model_type", "architecture", "library", "format", "file_bytes", "resident_bytes")
_SOURCED = (
    "layers",
    "hidden_size",
    "attention_heads",
    "kv_heads",
    "head_dim",
    "vocab_size",
    "max_positions",
    "dtype",
)


def to_agent(results: Sequence[Report | tuple[str, HubauditError]]) -> str:
    """Lines of ``subject``, a word for what is told, and its values, with tabs between. Sizes are bytes. What is unknown is left out."""
    lines: list[str] = []
    for result in results:
        rows = (
            [("error", result[1].kind, result[1].message, result[1].hint)]
            if isinstance(result, tuple)
            else _rows(result)
        )
        name = result[0] if isinstance(result, tuple) else result.subject.repo_id
        lines += ["\t".join((clean(name), *(clean(str(cell)) for cell in row))) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def _rows(report: Report) -> Iterator[tuple[object, ...]]:
    if report.subject.commit:
        yield "commit", report.subject.commit
    yield from _facts(report.facts)
    yield from _estimate(report.estimate)
    for fit in report.fit:
        yield "fit", fit.hardware.name, fit.verdict, "unknown" if fit.headroom_bytes is None else fit.headroom_bytes
    for finding in report.findings:
        where = finding.where if finding.line is None else f"{finding.where}:{finding.line}"
        yield "finding", finding.severity, finding.rule, where, finding.message, finding.help


def _facts(facts: ModelFacts) -> Iterator[tuple[object, ...]]:
    yield from ((name, value) for name in _FACTS if (value := getattr(facts, name)) is not None)
    for name in _SOURCED:
        fact = getattr(facts, name)
        if fact.value is not None:
            yield name, fact.value, fact.where
    if facts.parameters is not None:
        yield "parameters", facts.parameters.total
        if facts.parameters.active is not None:
            yield "active_parameters", facts.parameters.active


def _estimate(estimate: Estimate) -> Iterator[tuple[object, ...]]:
    for part in estimate.components:
        yield "component", part.id, part.bytes, part.low_bytes, part.high_bytes, part.exactness
    yield "total", estimate.total_bytes, estimate.low_bytes, estimate.high_bytes
    yield from (("omitted", gap.id, gap.reason) for gap in estimate.omitted)
