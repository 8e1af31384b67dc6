"""The tables of a batch, where nobody's browser is needed: what a stranger wrote stays words in each of them."""

from __future__ import annotations

import csv
from copy import deepcopy
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import snapshot_of

from hubaudit.batch.plan import Plan
from hubaudit.batch.work import _worked_out
from hubaudit.report.tabular import escaped

if TYPE_CHECKING:
    from pathlib import Path

FORMULA = '=HYPERLINK("http://evil.example","go")'
MARKUP = "</script><img src=x> [go](http://evil.example) |\x1b[2J`"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """A model whose words are all hostile, and one that could not be audited."""
    document = deepcopy(_worked_out(snapshot_of("qwen2-0.5b-instruct"), Plan()))
    document["facts"] |= {"architecture": MARKUP, "model_type": FORMULA, "dtype": f"+{FORMULA}"}
    error = {"kind": "network", "message": f"@{FORMULA} {MARKUP}", "hint": ""}
    failure = {"subject": {"repo_id": MARKUP, "commit": None}, "error": error}
    shared = {"at": "2026-01-01T00:00:00+00:00"}
    return [
        shared | {"name": FORMULA, "position": 0, "state": "audited", "document": document},
        shared | {"name": MARKUP, "position": 1, "state": "later", "document": failure},
    ]


def written(output_format: str, rows: list[dict[str, Any]], folder: Path) -> str:
    """What the format's file holds."""
    sink = import_module(f"hubaudit.batch.sinks.{output_format}").open_sink(folder, Plan().as_json())
    for row in rows:
        sink.put(row)
    (name,) = sink.close()
    return (folder / str(name)).read_text(encoding="utf-8")


def test_no_cell_is_a_formula(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """A spreadsheet takes what begins with ``= + - @`` for one; only numbers of ours may."""
    cells = [cell for line in csv.reader(written("csv", rows, tmp_path).splitlines()) for cell in line]
    assert f"'{FORMULA}" in cells
    assert f"'+{FORMULA}" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert not any("\x1b" in cell for cell in cells)


def test_a_page_has_no_markup_of_theirs(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """Names and messages stand in their cells, character for character."""
    page = written("markdown", rows, tmp_path)
    assert page.count(escaped(MARKUP)) >= 2
    assert "<img" not in page
    assert "[go](" not in page
    assert "\x1b" not in page


def test_a_page_of_html_ends_no_script_early(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """What they wrote lies in data, in which no character can end the element."""
    page = written("html", rows, tmp_path)
    assert "</script><img" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "evil.example" in page
