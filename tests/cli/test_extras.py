"""Badges, agents, completion, and hubaudit as an extension of hf."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

from hubaudit import cli

if TYPE_CHECKING:
    from pathlib import Path

QWEN = str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz")
SKILL = ROOT / "skills" / "hubaudit" / "SKILL.md"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err  # type: ignore[return-value]


def test_a_badge(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """To standard output or a file; fit needs a device."""
    code, out, _ = run(capsys, monkeypatch, "badge", QWEN)
    assert (code, out.startswith("<svg"), "1.29 GiB" in out) == (0, True, True)
    assert run(capsys, monkeypatch, "badge", QWEN, "--gpu", "rtx 4090", "-o", str(tmp_path / "b.svg"))[0] == 0
    assert ">fits<" in (tmp_path / "b.svg").read_text()
    assert run(capsys, monkeypatch, "badge", QWEN, "--kind", "fit")[0] == 2


def test_agents(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tab-separated, one fact a line, exact figures in bytes, and a row for what failed."""
    code, out, _ = run(capsys, monkeypatch, QWEN, "./nowhere", "--gpu", "rtx 4090", "--format", "agent")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 3
    assert ["Qwen/Qwen2-0.5B-Instruct", "parameters", "494032768"] in rows
    assert ["Qwen/Qwen2-0.5B-Instruct", "kv_heads", "2", "config.json#num_key_value_heads"] in rows
    assert ["./nowhere", "error", "not_found"] in [row[:3] for row in rows]
    assert {row[3] for row in rows if row[1] == "fit"} == {"fits"}
    assert "\x1b" not in out


@pytest.mark.parametrize(
    "line", [line for line in SKILL.read_text(encoding="utf-8").splitlines() if line.startswith("hubaudit ")]
)
def test_the_skills_commands_parse(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of SKILL.md exists, with its options."""
    import click

    words = shlex.split(line, comments=True)[1:]
    context = cli.cli.make_context("hubaudit", list(words))
    _, subcommand, rest = cli.cli.resolve_command(context, [*context._protected_args, *context.args])
    assert isinstance(subcommand, click.Command)
    subcommand.make_context("x", list(rest), parent=context)


def test_the_skill_has_a_header() -> None:
    """A name, and a description that says when to use it (at most 1,024 characters, as skills have it)."""
    import yaml

    header = yaml.safe_load(SKILL.read_text(encoding="utf-8").split("---")[1])
    assert header["name"] == "hubaudit"
    assert 100 < len(header["description"]) <= 1024


def test_an_extension_of_hf() -> None:
    """`hf audit` runs the program hf-audit, which is this one."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts["hf-audit"] == scripts["hubaudit"] == "hubaudit.cli:main"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("hubaudit ca", "card"), ("hubaudit gpus --for", "--format"), ("hubaudit audit --fail-on w", "warning")],
)
def test_completion(words: str, wanted: str) -> None:
    """Bash is told commands, options and choices."""
    env = os.environ | {
        "_HUBAUDIT_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run([sys.executable, "-m", "hubaudit"], capture_output=True, text=True, check=False, env=env)
    assert wanted in re.split(r"[,\n]", done.stdout)


def test_completion_of_the_extension(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Under its other name the program answers to the variable of that name."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/hf-audit"])
    monkeypatch.setenv("_HF_AUDIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "hf-audit ca")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        cli.main()
    assert "plain,card" in capsys.readouterr().out
