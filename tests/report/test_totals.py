"""Totals that lack a part: no form of a report shows them as the whole."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from small_repos import CONFIG

from hubaudit import audit
from hubaudit.batch.flat import audit_cells
from hubaudit.card.section import section_of
from hubaudit.fit.catalogue import hardware_of_size
from hubaudit.report.badge import badge
from hubaudit.report.github import to_annotations, to_summary
from hubaudit.report.human import render
from hubaudit.report.tabular import to_csv, to_markdown
from hubaudit.report.wire import to_wire
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from hubaudit.types import Report

QUANTIZED = CONFIG | {"quantization_config": {"quant_method": "fp8"}}
"""A config that says that its weights are packed, and no weights that show how: their bytes are not known."""


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """The audit of such a config, on a device that has room for all that is known."""
    (tmp_path / "config.json").write_text(json.dumps(QUANTIZED))
    made = audit(str(tmp_path), hardware=(hardware_of_size("24GiB"),))
    assert [part.id for part in made.estimate.omitted] == ["weights"]
    assert made.fit[0].verdict == "unknown"
    return made


def human(report: Report) -> str:
    """The report for people, wide enough for nothing to be folded."""
    console = Console(file=io.StringIO(), width=200, highlight=False, color_system=None)
    console.print(render(report))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    "form",
    [human, to_markdown, section_of, lambda one: to_summary([one])],
    ids=["human", "markdown", "card", "summary"],
)
def test_a_sum_without_a_part_is_a_least(form, report: Report) -> None:  # type: ignore[no-untyped-def]
    """Everywhere that the total is shown it is "at least", and its upper end, which nobody knows, is not."""
    text = form(report)
    total = format_bytes(report.estimate.total_bytes)
    assert f"at least {total}" in text
    assert text.count(total) == text.count(f"at least {total}")
    assert format_bytes(report.estimate.high_bytes) not in text


def test_room_that_is_not_known_is_not_a_number(report: Report) -> None:
    """What would be left beside the missing part is not shown as headroom, nor given to programs, and nobody is told that it does not fit."""
    (fit,) = report.fit
    room = format_bytes(fit.hardware.usable_bytes - report.estimate.total_bytes)
    assert room not in human(report)
    (told,) = to_wire(report)["fit"]
    assert (told["headroom_bytes"], told["verdict"], told["reason"]) == (None, "unknown", fit.reason)
    assert fit.reason
    annotations = to_annotations([report])
    assert room not in annotations
    assert "not known whether it fits" in annotations
    assert "the estimate lacks weights" in annotations


def test_a_badge_without_a_part(report: Report) -> None:
    """A badge says that it is a least."""
    assert "at least" in badge(report, "memory")


def test_rows_for_programs_name_what_is_missing(report: Report) -> None:
    """CSV, and the rows of a batch, have a column for it."""
    row = next(csv.DictReader(io.StringIO(to_csv([report]))))
    assert row["omitted"] == "weights"
    wire = to_wire(report)
    assert audit_cells({"workload": wire["workload"], "estimate": wire["estimate"]})["omitted"] == "weights"
