"""The command line: output, errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

from hubaudit import cli

if TYPE_CHECKING:
    from pathlib import Path

QWEN = str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz")


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run in this process."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err  # type: ignore[return-value]


def test_the_main_job(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`hubaudit REPO --mode infer` prints the report on stdout and nothing on stderr."""
    code, out, err = run(capsys, monkeypatch, QWEN, "--mode", "infer")
    assert (code, err) == (0, "")
    assert "494,032,768 parameters" in out


def test_options_may_come_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`hubaudit --mode kv REPO` is an audit too, as is `hubaudit audit REPO`."""
    first = run(capsys, monkeypatch, "--mode", "kv", "--json", QWEN)
    assert first == run(capsys, monkeypatch, "audit", QWEN, "--mode", "kv", "--json")
    assert json.loads(first[1])["estimate"]["total_bytes"] == 12_288 * 2560


@pytest.mark.parametrize("output_format", ["json", "jsonl", "csv", "markdown", "human"])
def test_several_subjects_one_of_them_bad(
    output_format: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The good ones are printed, the bad one is a row (where there are rows) and a line on stderr, and the exit code is its own."""
    code, out, err = run(capsys, monkeypatch, QWEN, "./nowhere", QWEN, "--format", output_format)
    assert code == 3
    assert err.startswith("error: no such file or folder: ./nowhere")
    assert "Traceback" not in err
    assert out.count("Qwen2ForCausalLM") >= 2
    if output_format == "json":
        assert [("error" in row) for row in json.loads(out)] == [False, True, False]
    if output_format == "jsonl":
        assert len([json.loads(line) for line in out.splitlines()]) == 3


def test_output_goes_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-o FILE` leaves stdout empty."""
    target = tmp_path / "report.json"
    assert run(capsys, monkeypatch, QWEN, "--json", "-o", str(target))[:2] == (0, "")
    assert json.loads(target.read_text())["facts"]["layers"] == 24


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--mode", "dance", QWEN), 2, "Invalid value for '--mode'"),
        (("--nope", QWEN), 2, "No such option"),
        ((QWEN, "--dtype", "int3"), 2, "cannot compute in dtype `int3`"),
        ((QWEN, "--revision", "main"), 2, "is local and has no revisions"),
        (("a b c",), 2, "not a repository id"),
        (("./nowhere",), 3, "no such file or folder"),
        (("nobody.json",), 3, "no such file or folder"),
        ((QWEN, "-o", "/nowhere/at/all.json"), 2, "cannot write"),
    ],
)
def test_errors_are_a_line_and_a_hint(
    words: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, a blank one, a hint where there is one, and the documented exit code."""
    ended, _, err = run(capsys, monkeypatch, *words)
    assert ended == code
    assert message in err
    lines = err.splitlines()
    if code:
        assert lines[0].startswith("error: ")
        assert len(lines) in (1, 3)
        assert all(line.startswith("hint: ") for line in lines[2:])


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`hubaudit` alone is a usage error that shows how it is used."""
    code, out, err = run(capsys, monkeypatch)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: hubaudit REPO...")


def test_an_empty_folder_cannot_be_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 5 and the reason."""
    code, _, err = run(capsys, monkeypatch, str(tmp_path))
    assert code == 5
    assert "no config.json and no" in err


def test_a_bundle_answers_like_what_it_was_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hubaudit bundle` and an audit of the result give the same report, the source aside."""
    copy = tmp_path / "copy.json.gz"
    assert run(capsys, monkeypatch, "bundle", QWEN, "-o", str(copy))[0] == 0
    assert run(capsys, monkeypatch, str(copy), "--json")[1] == run(capsys, monkeypatch, QWEN, "--json")[1]


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`hubaudit … | head -1` ends quietly."""
    command = f"{sys.executable} -m hubaudit {QWEN} --explain | head -n 1"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=os.environ)
    assert run.stderr == ""
    assert run.stdout.startswith("Qwen/Qwen2-0.5B-Instruct")


@pytest.mark.parametrize("columns", ["0", "1", "40", "79", "-1", "x"])
def test_a_narrow_terminal_loses_no_figure(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever says that there are fewer columns, the lines are those of 80: some environments say 0, and a cut figure is none."""
    said = []
    for width in ("80", columns):
        monkeypatch.setenv("COLUMNS", width)
        monkeypatch.setattr(sys, "argv", ["hubaudit", QWEN, "--explain", "--gpu", "h100"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "494,032,768" in said[0]


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}, {"COLUMNS": "40"}, {"TERM": "dumb"}]
)
def test_every_terminal_gets_a_report(environment: dict[str, str]) -> None:
    """Without colour, in ASCII, narrow or dumb: a report, no escape sequences, no traceback."""
    run = subprocess.run(
        [sys.executable, "-m", "hubaudit", QWEN],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    assert "494,032,768" in run.stdout
    assert "\x1b" not in run.stdout
    assert run.stderr == ""


def test_training_runs_on_all_the_devices_that_were_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--gpu NAMExN` is N processes unless `--gpus` says otherwise, and every way to share them has its verdict on the wire."""
    asked = (QWEN, "--mode", "train", "--seq-len", "512", "--gpu", "RTX 4090x4", "--json")
    code, out, _ = run(capsys, monkeypatch, *asked)
    answer = json.loads(out)
    assert (code, answer["workload"]["gpus"]) == (0, 4)
    usable = answer["fit"][0]["usable_bytes"]
    for stage in answer["estimate"]["stages"]:
        tight = "tight" if stage["high_bytes"] > usable else "fits"
        assert stage["fits"] == ("no" if stage["total_bytes"] > usable else tight)
    _, out, _ = run(capsys, monkeypatch, *asked, "--gpus", "2")
    assert json.loads(out)["workload"]["gpus"] == 2
    _, out, _ = run(capsys, monkeypatch, *asked[:-3], "--gpus", "2", "--json")
    assert {stage["fits"] for stage in json.loads(out)["estimate"]["stages"]} == {None}
