"""An audit through to every form of output, and what must hold of any report whatever the repository says."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

from rich.console import Console

from hubaudit.auditing import audit_facts
from hubaudit.errors import UsageError
from hubaudit.estimate.expression import evaluate
from hubaudit.facts.repository import understand
from hubaudit.report.badge import badge
from hubaudit.report.explain import explain
from hubaudit.report.github import to_annotations, to_summary
from hubaudit.report.human import render
from hubaudit.report.layers import layer_map
from hubaudit.report.layers import to_text as layers_to_text
from hubaudit.report.sarif import to_sarif
from hubaudit.report.tabular import to_csv, to_markdown
from hubaudit.report.wire import to_wire
from hubaudit.types import Workload

if TYPE_CHECKING:
    from hubaudit.types import Hardware, Report, RepoSnapshot


def audited(
    snapshot: RepoSnapshot, workload: Workload, hardware: tuple[Hardware, ...] = (), *, form: int = 0
) -> Report | None:
    """Audit, check and print one snapshot; ``None`` where the workload does not go with the model.

    ``CannotAuditError`` (exit code 5) escapes, as it may. A model is never the reason why the plain question is no question.
    """
    facts = understand(snapshot)
    try:
        report = audit_facts(snapshot, facts, workload, hardware)
    except UsageError as error:
        is_plain = workload == Workload(mode=workload.mode)
        assert not is_plain or "not trained themselves" in error.message, (
            f"a usage error where nothing was asked: {error}"
        )
        return None
    check(report)
    printed(report, form)
    return report


def check(report: Report) -> None:
    """Figures are what their formulas say, nothing that is not known counts as nothing, and every gap has a reason."""
    estimate, facts = report.estimate, report.facts
    for part in estimate.components:
        assert evaluate(part.formula, part.inputs) == part.bytes, f"{part.id} is not its formula"
        assert 0 <= part.low_bytes <= part.bytes <= part.high_bytes, f"{part.id} has no band"
    assert sum(part.bytes for part in estimate.components) == estimate.total_bytes
    assert 0 <= estimate.low_bytes <= estimate.total_bytes <= estimate.high_bytes
    assert all(gap.reason for gap in estimate.omitted), "something is left out without a reason"
    told = {gap.id for gap in estimate.omitted}
    assert (
        not told or any("not in the total" in said for said in estimate.assumptions) or report.workload.mode == "train"
    )
    _check_weights(report, told)
    _check_cache(report, told)
    for fact in (
        facts.layers,
        facts.hidden_size,
        facts.kv_heads,
        facts.head_dim,
        facts.vocab_size,
        facts.max_positions,
    ):
        assert fact.where, "a fact that nobody says where it was read"
    assert facts.parameters is not None or facts.parameters_reason
    assert facts.layer_plan is not None or facts.layer_plan_reason


def _check_weights(report: Report, told: set[str]) -> None:
    if (
        report.workload.mode != "infer" or report.workload.pp > 1
    ):  # a rank of several, or a stage, may hold none of them
        return
    weights = [part for part in report.estimate.components if part.id == "weights"]
    count = report.facts.parameters
    if not weights:
        assert "weights" in told or (count is not None and count.loaded == 0), "no weights, and no reason"
    elif weights[0].bytes == 0:
        assert count is not None
        assert count.loaded == 0, f"{count.loaded} parameters in 0 bytes"


def _check_cache(report: Report, told: set[str]) -> None:
    """A layer that keeps something keeps at least a byte of it, unless nothing was to be kept."""
    if report.workload.mode == "train":
        return
    if report.facts.layer_plan is None:
        assert "kv_cache" in told, "no cache, and no reason"
        return
    for layer in report.facts.layer_plan:
        for tensor in layer.tensors:
            assert tensor.elements_per_token > 0 or tensor.fixed_elements > 0, (
                f"layer {layer.index} keeps an empty {tensor.name}"
            )
            assert tensor.window_tokens is None or tensor.window_tokens > 0, (
                f"layer {layer.index} looks back at nothing"
            )


def printed(report: Report, form: int) -> None:
    """One of the forms of output, with nothing in it that moves a cursor."""
    made = (_human if form % _HUMAN_EVERY == 1 else FORMS[form % len(FORMS)])(report)
    assert made.replace("\n", "").replace("\r", "").isprintable(), "control characters in the output"


def _human(report: Report) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False, color_system=None)
    console.print(render(report, with_explanation=True))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def _layers(report: Report) -> str:
    return layers_to_text(layer_map(report.subject, report.facts, "BF16"))


#: Most of what the form for people costs is rich's own time, ten times that of all the rest of a case.
_HUMAN_EVERY = 36
FORMS = (
    lambda report: json.dumps(to_wire(report), allow_nan=False),
    lambda report: "\n".join(explain(report)),
    to_markdown,
    lambda report: to_csv([report]),
    lambda report: to_annotations([report]) + to_summary([report]),
    lambda report: json.dumps(json.loads(to_sarif([report])), allow_nan=False),
    _layers,
    lambda report: "".join(badge(report, kind) for kind in ("memory", "parameters")),
)
