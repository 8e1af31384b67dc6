"""`hubaudit gpus`, and audits with --gpu, --memory and --fail-on: output in every form, and exit codes."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest
from fixture_models import ROOT

from hubaudit import cli
from hubaudit.fit.catalogue import catalogue

LLAMA = str(ROOT / "fixtures" / "bundles" / "llama-3.1-8b.json.gz")
QWEN = str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz")


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run in this process."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_whole_catalogue_in_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row on a line of its own, a head and a count; no blanks at the ends."""
    code, out, err = run(capsys, monkeypatch, "gpus")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert len(lines) == len(catalogue()) + 3
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith(f"{len(catalogue())} accelerators")
    assert all(line == line.rstrip() for line in lines)


def test_a_search_shows_whose_word_a_size_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process was told, or as the box says."""
    assert run(capsys, monkeypatch, "gpus", "rtx", "3070")[0] == 0
    rows = run(capsys, monkeypatch, "gpus", "gtx 960")[1].splitlines()
    assert [row.split()[-1] for row in rows[1:3]] == ["process", "marketing"]
    assert [row.split()[-2] for row in rows[1:3]] == ["3.95", "2.00"]


def test_programs_get_every_field(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON and CSV hold the same rows, with the sources."""
    wire = json.loads(run(capsys, monkeypatch, "gpus", "4090", "--json")[1])
    rows = list(csv.DictReader(io.StringIO(run(capsys, monkeypatch, "gpus", "4090", "--format", "csv")[1])))
    assert wire["schema_version"] == 1
    assert [gpu["name"] for gpu in wire["gpus"]] == [row["name"] for row in rows]
    assert [str(gpu["usable_bytes"]) for gpu in wire["gpus"]] == [row["usable_bytes"] for row in rows]
    assert all(gpu["usable_evidence"] and gpu["memory_source"] for gpu in wire["gpus"])


def test_nothing_found_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, as for a repository that does not exist."""
    code, out, err = run(capsys, monkeypatch, "gpus", "zx81")
    assert (code, out) == (3, "")
    assert err.startswith("error: no accelerator matches `zx81`")


DEVICES = (
    "--gpu",
    "rtx3070",
    "--gpu",
    "h100x8",
    "--gpu",
    "4060 ti 16gb",
    "--gpu",
    "a2",
    "--memory",
    "16GB",
    "--prompt-tokens",
    "2300",
)


def test_a_person_sees_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A row a device with verdict, room and limits, and what would fit instead, in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, monkeypatch, LLAMA, *DEVICES)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    part = out[out.index("Does it fit?") : out.index("The same workload")]
    assert "\n\n\n" not in out
    for words in (
        "GeForce RTX 3070",
        "no",
        "fits with nf4 weights",
        "H100 80GB × 8",
        "fits",
        "131,072",
        "one of them is enough",
        "tight",
    ):
        assert words in part


def test_a_page_has_the_same_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Markdown: a section with a table of six columns, and the remarks as a list."""
    out = run(capsys, monkeypatch, LLAMA, *DEVICES, "--format", "markdown")[1]
    part = out[out.index("### Does it fit?") : out.index("### The same workload")].strip().splitlines()
    table = [line for line in part if line.startswith("|")]
    assert len(table) == 2 + 5
    assert {line.count("|") for line in table} == {7}
    assert part[-1].startswith("- 16GB: fits with int8 weights")


def test_a_program_gets_every_answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The `fit` rows of the wire contract, in the order asked; CSV has the verdicts."""
    rows = json.loads(run(capsys, monkeypatch, LLAMA, *DEVICES, "--json")[1])["fit"]
    assert [(row["gpu"], row["count"], row["verdict"]) for row in rows] == [
        ("GeForce RTX 3070", 1, "no"),
        ("H100 80GB", 8, "fits"),
        ("GeForce RTX 4060 Ti 16GB", 1, "no"),
        ("A2", 1, "tight"),
        ("16GB", 1, "no"),
    ]
    for row in rows:
        assert row.keys() >= {"gpu", "count", "usable_bytes", "verdict", "headroom_bytes", "max_batch", "max_context"}
    assert [row["usable_source"] for row in rows] == ["process", "process", "process", "marketing", "given"]
    assert [row["best_precision"] for row in rows] == ["nf4", "bf16", "int8", "int8", "int8"]
    (line,) = csv.DictReader(io.StringIO(run(capsys, monkeypatch, LLAMA, *DEVICES, "--format", "csv")[1]))
    assert line["fit"].startswith("GeForce RTX 3070: no; H100 80GB × 8: fits; ")


def test_without_hardware_nothing_is_judged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No section, no rows."""
    assert json.loads(run(capsys, monkeypatch, LLAMA, "--json")[1])["fit"] == []
    assert "Does it fit" not in run(capsys, monkeypatch, LLAMA)[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--gpu", "4090"), 0),
        (("--gpu", "rtx3070"), 0),  # no gate was asked for
        (("--gpu", "4090", "--fail-on", "fit"), 0),
        (("--gpu", "a2", "--fail-on", "fit"), 0),  # tight
        (("--gpu", "rtx3070", "--fail-on", "fit"), 10),
        (("--gpu", "4090", "--gpu", "rtx3070", "--fail-on", "fit"), 10),
        (("--gpu", "rtx3070", "--quant", "nf4", "--fail-on", "fit"), 0),
        (("--gpu", "rtx3070x4", "--fail-on", "fit"), 0),  # with tp 4
        (("--gpu", "rtx3070x2", "--fail-on", "fit"), 10),
        (("--memory", "20GiB", "--fail-on", "fit"), 0),
        (("--memory", "2GiB", "--fail-on", "fit"), 10),
        (("--fail-on", "fit"), 2),
        (("--fail-on", "rain", "--gpu", "4090"), 2),
        (("--gpu", "a100"), 2),
        (("--gpu", "rtx9999"), 2),
        (("--gpu", ""), 2),
        (("--memory", "much"), 2),
    ],
)
def test_exit_codes(
    words: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 where the gate is asked for and not passed, 2 where the hardware makes no sense; an error is a line and a hint."""
    ended, out, err = run(capsys, monkeypatch, LLAMA, *words, "--format", "jsonl")
    assert ended == code
    assert (out == "") == (code == 2)
    assert err.startswith("error: ") == (code == 2)


def test_a_gate_over_several_models_needs_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not fit closes it; one that cannot be audited has its own code."""
    gate = ("--gpu", "rtx3070", "--fail-on", "fit", "--format", "jsonl")
    assert run(capsys, monkeypatch, QWEN, *gate)[0] == 0
    assert run(capsys, monkeypatch, QWEN, LLAMA, *gate)[0] == 10
    assert run(capsys, monkeypatch, LLAMA, "./nowhere", *gate)[0] == 3
