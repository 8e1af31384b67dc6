"""`hubaudit compare`: formats, the shared options, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

from hubaudit import cli

if TYPE_CHECKING:
    from pathlib import Path

QWEN, GPT2 = (str(ROOT / "fixtures" / "bundles" / f"{name}.json.gz") for name in ("qwen2-0.5b-instruct", "gpt2"))


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run in this process."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_workload_is_that_of_an_audit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of an audit have their effect on every model, devices too."""
    words = (QWEN, GPT2, "-b", "4", "--prompt-tokens", "100", "--new-tokens", "10", "--gpu", "4090", "--json")
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    for subject in json.loads(out)["subjects"]:
        assert (subject["workload"]["batch_size"], subject["workload"]["prompt_tokens"]) == (4, 100)
        assert subject["fit"][0]["verdict"] == "fits"


def test_formats(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A line a model as CSV, a table as Markdown, and a file instead of stdout."""
    lines = list(csv.DictReader(io.StringIO(run(capsys, monkeypatch, QWEN, GPT2, "--format", "csv")[1])))
    assert [line["repo_id"] for line in lines] == ["Qwen/Qwen2-0.5B-Instruct", "openai-community/gpt2"]
    assert run(capsys, monkeypatch, QWEN, GPT2, "--format", "markdown")[1].startswith("|  | Qwen/Qwen2-0.5B-Instruct")
    file = tmp_path / "beside.txt"
    assert run(capsys, monkeypatch, QWEN, GPT2, "-o", str(file))[:2] == (0, "")
    assert "494,032,768" in file.read_text(encoding="utf-8")


def test_it_takes_two(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One model is a usage error; one that is missing ends with its code after the table."""
    assert run(capsys, monkeypatch, QWEN)[0] == 2
    code, out, err = run(capsys, monkeypatch, QWEN, str(ROOT / "no-such-folder"))
    assert code not in (0, 1)
    assert "494,032,768" in out
    assert err.startswith("error: ")
