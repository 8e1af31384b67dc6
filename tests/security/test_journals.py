"""The directory of a batch that somebody edited: told to be that, never a traceback."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from small_repos import CONFIG

from hubaudit import cli
from hubaudit.batch.journal import JOURNAL, PLAN

if TYPE_CHECKING:
    from pathlib import Path


def run(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `hubaudit batch`."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", "batch", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run over one model."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    words = (str(tmp_path / "model"), "-o", str(tmp_path / "run"), "-q", "--format", "none")
    assert run(*words, monkeypatch=monkeypatch) == 0
    return tmp_path / "run"


def test_a_row_as_it_was_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without which the next test would prove nothing."""
    assert run("-o", str(folder), "--fail-on", "error", monkeypatch=monkeypatch) == 0
    assert run("--diff", str(folder), str(folder), monkeypatch=monkeypatch) == 0


@pytest.mark.parametrize("document", [5, [], {}, None], ids=repr)
def test_a_row_without_a_document(
    document: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its formats end with one line, a hint, and the code of what cannot be audited."""
    row = json.loads((folder / JOURNAL).read_text())
    (folder / JOURNAL).write_text(json.dumps({**row, "document": document}) + "\n")
    assert run("-o", str(folder), monkeypatch=monkeypatch) == 5
    assert "holds rows that no batch writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("subject", 5),
        ("subject", {}),
        ("findings", [5]),
        ("audits", [5]),
        ("audits", []),
        ("audits", [{"workload": {}}]),
        ("facts", {"parameters": 5}),
    ],
)
def test_a_row_that_no_batch_writes(
    key: str,
    value: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same where only a part of the document is another."""
    row = json.loads((folder / JOURNAL).read_text())
    (folder / JOURNAL).write_text(json.dumps({**row, "document": {**row["document"], key: value}}) + "\n")
    assert run("-o", str(folder), monkeypatch=monkeypatch) == 5
    assert "holds rows that no batch writes" in capsys.readouterr().err


@pytest.mark.parametrize("plan", ["5", "[]", "{}", '{"workloads": 5, "hardware": []}', "[" * 100_000, "9" * 5_000])
def test_a_plan_that_is_none(
    plan: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a directory holds no batch, neither to show nor to compare."""
    (folder / PLAN).write_text(plan)
    for words in (("-o", str(folder)), ("--diff", str(folder), str(folder))):
        assert run(*words, monkeypatch=monkeypatch) == 3
        assert "holds no batch" in capsys.readouterr().err
