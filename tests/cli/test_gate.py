"""--fail-on, --ignore and the project's own settings: which findings count, and what the exit code says."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from shapes import BASE, as_json
from small_repos import CONFIG

from hubaudit import cli
from hubaudit.cli.settings import settings
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a model whose config is wrong on heads (an error) and whose licence is missing (a warning)."""
    (tmp_path / ".git").mkdir()
    model = tmp_path / "model"
    model.mkdir()
    for path, content in {
        **BASE,
        "README.md": b"# no header\n",
        "config.json": as_json({**CONFIG, "num_key_value_heads": 4}),
    }.items():
        (model / path).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, list[str], str]:
    """Exit code, the rules found, and stderr."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", *words, "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    found = [finding["rule"] for finding in json.loads(out)["findings"]] if out else []
    return ended.value.code or 0, found, err  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (("--fail-on", "error"), 12),
        (("--fail-on", "warning"), 12),
        (("--fail-on", "error", "--ignore", "head-shape-mismatch"), 0),
        (("--fail-on", "warning", "--ignore", "head-shape-mismatch"), 12),
        (("--fail-on", "warning", "--ignore", "head-shape-mismatch", "--ignore", "licence-missing"), 0),
        (("--fail-on", "fit", "--fail-on", "error", "--memory", "80GiB"), 12),
        (("--fail-on", "fit", "--fail-on", "error", "--memory", "1MiB"), 10),
    ],
)
def test_exit_codes(
    words: tuple[str, ...],
    code: int,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12 where a finding is as bad as asked for; a misfit counts first."""
    assert run(capsys, monkeypatch, "model", *words)[0] == code


def test_quiet_leaves_the_exit_code(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing on stdout, the same exit code; what -o asks for is written."""
    assert run(capsys, monkeypatch, "model", "-q", "--fail-on", "error", "-o", "report.json") == (12, [], "")
    assert json.loads((project / "report.json").read_text())["findings"]
    assert run(capsys, monkeypatch, "model", "-q", "--fail-on", "error") == (12, [], "")


def test_a_batch_reads_the_rules_before_it_starts(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that does not exist is said before a model is audited or a directory made."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", "batch", "model", "-o", "run", "--ignore", "no-such-rule"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "no rule is called" in capsys.readouterr().err
    assert not (project / "run").exists()


@pytest.mark.parametrize("name", [".hubaudit.toml", "pyproject.toml"])
def test_settings(
    name: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files say the same things; the folder below one is in the project too, and options come on top."""
    head = "[tool.hubaudit]\n" if name == "pyproject.toml" else ""
    table = "[tool.hubaudit.severity]" if head else "[severity]"
    (project / name).write_text(
        f'{head}fail-on = "error"\nignore = ["head-shape-mismatch"]\n{table}\nlicence-missing = "error"\n'
    )
    assert run(capsys, monkeypatch, "model")[:2] == (12, ["licence-missing"])
    assert run(capsys, monkeypatch, "model", "--ignore", "licence-missing")[:2] == (0, [])
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert run(capsys, monkeypatch, "../model")[0] == 12


def test_a_repository_has_no_say(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings in the audited folder silence nothing."""
    (project / "model" / ".hubaudit.toml").write_text('ignore = ["head-shape-mismatch"]\n')
    assert run(capsys, monkeypatch, "model", "--fail-on", "error")[:2] == (
        12,
        ["head-shape-mismatch", "licence-missing"],
    )


def test_the_nearest_file_counts(project: Path) -> None:
    """A folder's own settings come before those above; above the root of the git repository nobody looks."""
    (project / ".hubaudit.toml").write_text('fail-on = "fit"\n')
    (project / "pyproject.toml").write_text('[tool.hubaudit]\nfail-on = "error"\n')
    assert settings(project).fail_on == ("fit",)
    inner = project / "model"
    (inner / ".git").mkdir()
    assert settings(inner).fail_on == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ignore = 3", "list of words"),
        ("ignore = ['no-such-rule']", "no rule is called"),
        ("fail-on = 'sometimes'", "one or more of"),
        ("fail_on = 'fit'", "nobody reads the key"),
        ("[severity]\nremote-code = 'bad'", "severity is a table"),
        ("[card]\nfile = ['x']", "nobody reads the key"),
        ("ignore = [", "is no TOML"),
    ],
)
def test_settings_that_make_no_sense(text: str, said: str, project: Path) -> None:
    """A usage error that names the file, never silence."""
    (project / ".hubaudit.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        settings(project)


def test_a_misspelt_rule(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignoring nothing would be worse than an error; the nearest name is the hint."""
    code, _, err = run(capsys, monkeypatch, "model", "--ignore", "licence-mising")
    assert code == 2
    assert "did you mean `licence-missing`?" in err


@pytest.mark.parametrize(
    "words", [("rules",), ("rules", "remote-code"), ("rules", "--format", "markdown"), ("rules", "--json")]
)
def test_rules_are_listed(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list, a page, Markdown, JSON."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert "remote-code" in capsys.readouterr().out
