"""Text forms: readable at 80 columns, without colour, and with nothing a stranger wrote taken for markup."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from fixture_models import NAMES, made, snapshot_of
from rich.console import Console

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import NotFoundError
from hubaudit.report.explain import explain, substituted
from hubaudit.report.human import render
from hubaudit.report.tabular import COLUMNS, to_csv, to_markdown
from hubaudit.types import Report, Workload

HOSTILE = "evil/\x1b[31m|`<b>\u202e\x07=1+1"


def report_on(name: str) -> Report:
    """The default audit of a fixture."""
    return audit_snapshot(snapshot_of(name), Workload())


def printed(report: Report, *, with_explanation: bool = False) -> str:
    """What a pipe of 80 columns gets."""
    console = Console(file=io.StringIO(), width=80, highlight=False, color_system=None)
    console.print(render(report, with_explanation=with_explanation))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    """Every report fits into 80 columns and holds no escape sequence."""
    text = printed(report_on(name), with_explanation=True)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert "…" not in text


def test_the_first_screen_says_what_matters() -> None:
    """Parameters, geometry, each component and the total are there, in words a person reads."""
    text = printed(report_on("qwen2-0.5b-instruct"))
    for words in (
        "494,032,768 parameters",
        "layers 24",
        "kv heads 2",
        "942.29 MiB",
        "12,288 B a token",
        "total",
        "nf4",
    ):
        assert words in text


def test_explanations_put_the_numbers_in() -> None:
    """The formula stands there with names and with numbers, and the rule of thumb as what it is."""
    text = "\n".join(explain(report_on("qwen2-0.5b-instruct")))
    assert "2 * layers * kv_heads * head_dim * batch_size * (prompt_tokens + new_tokens) * kv_bits // 8" in text
    assert "2 * 24 * 2 * 64 * 1 * (2048 + 0) * 16 // 8" in text
    assert "rule of thumb 1.2 × weights" in text
    assert "config.json#num_key_value_heads" in text


def test_substitution_replaces_whole_names() -> None:
    """`a` inside of `max` or of `a_b` stays."""
    assert substituted("max(a, a_b) * 2", {"a": 1, "a_b": 20}) == "max(1, 20) * 2"


def test_strangers_words_are_never_sent_to_the_terminal() -> None:
    """Control and direction characters of names are escaped in every text form."""
    config = {"model_type": "\x1b[2J", "architectures": ["\x07Evil"], "hidden_size": 4}
    report = audit_snapshot(replace(made(config, {"\x1b[1mx.weight": ("F32", (2, 2))}), repo_id=HOSTILE), Workload())
    for text in (printed(report, with_explanation=True), to_markdown(report), to_csv([report])):
        assert not any(not character.isprintable() and character not in "\n" for character in text)


def test_csv_has_a_line_a_subject_and_no_formulas() -> None:
    """Names that a spreadsheet would take for a formula are quoted; failures fill the last column."""
    report = replace(report_on("qwen2-0.5b-instruct"))
    report = replace(report, subject=replace(report.subject, repo_id="=cmd()"))
    rows = list(csv.DictReader(io.StringIO(to_csv([report, ("a/b", NotFoundError("gone"))]))))
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["repo_id"] == "'=cmd()"
    assert rows[0]["parameters"] == "494032768"
    assert rows[1]["error"] == "not_found: gone"


def test_markdown_escapes_what_is_not_ours() -> None:
    """A name cannot open a table cell, a code span or a tag."""
    report = report_on("qwen2-0.5b-instruct")
    text = to_markdown(replace(report, subject=replace(report.subject, repo_id="a|b`<script>")))
    assert "<script>" not in text
    assert text.startswith("## a\\|b\\`&lt;script&gt;")
