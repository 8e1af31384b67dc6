"""Reports of one model → the section "Memory requirements" of its card, in ASCII, the same for the same model whenever it is written.

It holds neither the date, nor the tool's version, nor the commit: a card that is pushed would change the commit that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.formats.card_text import BEGIN, END
from hubaudit.report.phrases import fit_cells, note_of, plan_line, workload_line
from hubaudit.report.tabular import table
from hubaudit.report.totals import least, total_band, total_of
from hubaudit.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hubaudit.types import Report

#: What people have, from free to rented; `--gpu` names others.
COMMON_GPUS = ("t4", "rtx 3060", "rtx 4090", "l40s", "a100 80gb", "h100 80gb")
_ASCII = str.maketrans({"–": "-", "×": "x", "·": ",", "…": "..."})
_WRITTEN = "Figures by `hubaudit`, from config and weight headers. `hubaudit card README.md --write` writes them anew."


def section_of(
    report: Report, training: Sequence[tuple[str, Report]] = (), *, attributes: Mapping[str, str] | None = None
) -> str:
    """The section with its markers.

    Args:
        report: the audit for inference, with the devices to show in ``report.fit``.
        training: audits for training, each with the name of its recipe.
        attributes: what the opening marker says of how the section was made, so that a later check makes it the same way.
    """
    told = "".join(f" {key}={value}" for key, value in sorted((attributes or {}).items()))
    lines = [f"{BEGIN}{told} -->", "## Memory requirements", "", *_parameters(report), "", *_precisions(report)]
    lines += ["", *_cache(report), *_devices(report), *_training(training), "", _WRITTEN, f"{END} -->"]
    text = "\n".join(line.translate(_ASCII) for line in lines) + "\n"
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _parameters(report: Report) -> Iterator[str]:
    count = report.facts.parameters
    if count is None:
        yield f"Parameters not counted: {report.facts.parameters_reason}."
        return
    dtypes = (
        ", ".join(f"{format_count(number)} {dtype}" for dtype, number in count.by_dtype.items())
        if len(count.by_dtype) > 1
        else "".join(count.by_dtype)
    )
    active = f", {count.active:,} active per token" if count.active is not None and count.active != count.loaded else ""
    context = report.facts.max_positions.value
    yield f"{count.total:,} parameters ({dtypes}){active}." + (f" Context: {context:,} tokens." if context else "")


def _precisions(report: Report) -> Iterator[str]:
    """The weights and the whole need at each precision; where nothing can be loaded another way, as they are."""
    estimate = report.estimate
    band = total_band(estimate)
    yield f"Inference, {workload_line(report.workload)}: {total_of(estimate)}{f' ({band})' if band else ''}."
    if report.variants:
        yield ""
        yield from table(
            ("weights in", "weights", "whole need"),
            [
                (one.quant or one.dtype, format_bytes(one.weights_bytes), least(one.total_bytes, estimate))
                for one in report.variants
            ],
        )


def _cache(report: Report) -> Iterator[str]:
    plan = plan_line(report.facts)
    for part in report.estimate.components:
        if part.category == "KVCache" and note_of(part):
            yield f"KV cache: {note_of(part)}, {format_bytes(part.bytes)} for the above" + (
                f" (layers: {plan})." if plan else "."
            )
    for gap in report.estimate.omitted:
        yield f"Not in these figures: {gap.id} ({gap.reason})."


def _devices(report: Report) -> Iterator[str]:
    if not report.fit:
        return
    yield ""
    cells = [fit_cells(fit) for fit in report.fit]
    best = [fit.best_precision or "none" for fit in report.fit]
    yield from table(
        ("GPU", "usable", "verdict", "longest context", "fits with"),
        [
            (name, usable, verdict, context, precision)
            for (name, usable, verdict, _, _, context), precision in zip(cells, best, strict=True)
        ],
    )


def _training(training: Sequence[tuple[str, Report]]) -> Iterator[str]:
    if not training:
        return
    yield ""
    yield from table(
        ("training", "need", "band"),
        [
            (
                name,
                total_of(report.estimate),
                total_band(report.estimate),
            )
            for name, report in training
        ],
    )
    left_out = {f"{part.id} ({part.reason})": None for _, report in training for part in report.estimate.omitted}
    if left_out:
        yield ""
        yield f"Training leaves out {'; '.join(left_out)}."
