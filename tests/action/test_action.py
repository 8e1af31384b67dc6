"""The GitHub Action, run as GitHub runs it: its own scripts, with the GITHUB_* files in place; and what its text may not hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fixture_models import ROOT
from shapes import BASE, as_json
from small_repos import CONFIG

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
QWEN = str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz")
LLAMA = str(ROOT / "fixtures" / "bundles" / "llama-3.1-8b.json.gz")


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner's temporary folder, in which hubaudit is installed as the first step does it: a program that runs this one."""
    python = tmp_path / "temp" / "hubaudit" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "work").mkdir()
    return tmp_path


def run_step(
    step: dict[str, Any], runner: Path, inputs: dict[str, str], **more: str
) -> subprocess.CompletedProcess[str]:
    """One step's script, as it stands, with the environment that its `env` makes of these inputs."""
    values = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | inputs

    def filled(text: str) -> str:
        text = re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: values[found[1]], text)
        return text.replace("${{ github.action_path }}", str(ROOT))

    env = {
        "PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "HF_HOME": os.environ["HF_HOME"], "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path),
        "RUNNER_TEMP": str(runner / "temp"), "GITHUB_OUTPUT": str(runner / "output"), "GITHUB_STEP_SUMMARY": str(runner / "summary.md"), "GITHUB_ACTIONS": "true",
        **{name: filled(value) for name, value in step.get("env", {}).items()}, **more,
    }  # fmt: skip
    script = runner / "step.sh"
    script.write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=runner / "work", env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def audit(runner: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """The step that audits, and its outputs."""
    step = next(step for step in STEPS if step.get("id") == "audit")
    done = run_step(step, runner, {name.replace("_", "-"): value for name, value in inputs.items()})
    output = runner / "output"
    lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    return done, dict(line.split("=", 1) for line in lines)


def test_models_that_fit(runner: Path) -> None:
    """Two bundles on one card, offline: outputs, a report line each, a summary with table and bar, SARIF, and exit code 0."""
    done, outputs = audit(runner, models=f"{QWEN}\n{LLAMA}\n", gpu="rtx 4090", fail_on="fit,error", sarif="out.sarif")
    assert (done.returncode, done.stderr) == (0, "")
    assert outputs["fits"] == "true"
    rows = [json.loads(line) for line in Path(outputs["report"]).read_text(encoding="utf-8").splitlines()]
    assert [row["subject"]["repo_id"] for row in rows] == ["Qwen/Qwen2-0.5B-Instruct", "meta-llama/Llama-3.1-8B"]
    assert int(outputs["total-bytes"]) == max(row["estimate"]["total_bytes"] for row in rows)
    summary = (runner / "summary.md").read_text(encoding="utf-8")
    assert "| Qwen/Qwen2-0.5B-Instruct" in summary
    assert "█" in summary
    assert json.loads((runner / "work" / outputs["sarif"]).read_text(encoding="utf-8"))["version"] == "2.1.0"


def test_a_model_that_does_not_fit(runner: Path) -> None:
    """Exit code 10 where that was asked for, and else an annotation and the output only."""
    done, outputs = audit(runner, models=LLAMA, gpu="8GiB", fail_on="fit")
    assert (done.returncode, outputs["fits"]) == (10, "false")
    assert "::warning title=hubaudit%3A does not fit::" in done.stdout
    assert audit(runner, models=LLAMA, gpu="8GiB", fail_on="")[0].returncode == 0


def test_findings(runner: Path) -> None:
    """A folder of the checkout with an error: an annotation at its file, exit code 12, and `ignore`."""
    model = runner / "work" / "model"
    model.mkdir()
    for path, content in {
        **BASE,
        "LICENSE": b"MIT",
        "config.json": as_json({**CONFIG, "num_key_value_heads": 4}),
    }.items():
        (model / path).write_bytes(content)
    done, outputs = audit(runner, models="model")
    assert (done.returncode, outputs["findings"]) == (12, "1")
    assert "::error file=model/config.json,title=hubaudit%3A head-shape-mismatch::" in done.stdout
    assert audit(runner, models="model", ignore="head-shape-mismatch")[0].returncode == 0


def test_cards(runner: Path) -> None:
    """A stale card fails the job, `write` brings it up to date, and then it passes."""
    folder = runner / "work" / "models" / "a"
    folder.mkdir(parents=True)
    for path, content in {**BASE, "README.md": b"# a\n"}.items():
        (folder / path).write_bytes(content)
    assert audit(runner, card="models/*/README.md")[0].returncode == 11
    assert audit(runner, card="models/*/README.md", fail_on="error")[0].returncode == 0
    assert audit(runner, card="models/*/README.md", write="true")[0].returncode == 0
    assert audit(runner, card="models/*/README.md")[0].returncode == 0


@pytest.mark.parametrize(
    ("inputs", "code", "said"),
    [
        ({"models": "./nowhere"}, 3, "no such file or folder"),
        ({"models": QWEN, "mode": "dream"}, 2, "mode is one of"),
        ({"models": QWEN, "fail_on": "sometimes"}, 2, "fail-on is any of"),
        ({"models": QWEN, "gpu": "no such card"}, 2, "no such card"),
        ({"models": QWEN, "sarif": "a\nfits=true"}, 2, "path of one file"),
    ],
)
def test_bad_inputs(inputs: dict[str, str], code: int, said: str, runner: Path) -> None:
    """One line, the documented exit code, and no output that the input wrote itself."""
    done, outputs = audit(runner, **inputs)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert outputs.get("fits", "") == ""


@pytest.mark.parametrize(
    "hostile", ["$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "--help", "-o/etc/passwd"]
)
def test_inputs_are_data(hostile: str, runner: Path) -> None:
    """Nothing in an input is run, whatever it is quoted with, and none is an option."""
    for inputs in ({"models": hostile}, {"card": hostile}, {"models": QWEN, "gpu": hostile}):
        assert audit(runner, **inputs)[0].returncode != 0
    assert not (runner / "work" / "pwned").exists()


@pytest.mark.parametrize("version", ["1.0; touch pwned", "main", "1.0", "$(touch pwned)", "1.0.0 --index-url=x"])
def test_a_version_is_a_release(version: str, runner: Path) -> None:
    """Anything else is refused before something is installed."""
    step = next(step for step in STEPS if step.get("id") == "install")
    done = run_step(step, runner, {"version": version})
    assert (done.returncode, (runner / "work" / "pwned").exists()) == (2, False)
    assert "::error" in done.stdout


# --- the comment ---------------------------------------------------------------------------------------------------------


def comment(runner: Path, server: HTTPServer, event: Any) -> subprocess.CompletedProcess[str]:
    """The step that comments, against a GitHub of our own."""
    (runner / "temp" / "hubaudit-summary.md").write_text("# hubaudit\n")
    (runner / "event.json").write_text(json.dumps(event))
    return run_step(
        STEPS[-1],
        runner,
        {"github-token": "ghs_x"},
        GITHUB_API_URL=server.url_for("").rstrip("/"),
        GITHUB_REPOSITORY="o/r",
        GITHUB_EVENT_PATH=str(runner / "event.json"),
    )


MARK = "<!-- hubaudit: this comment is kept up to date -->"


def test_the_first_comment(runner: Path, httpserver: HTTPServer) -> None:
    """Written once; a stranger's copy of the mark is left alone."""
    theirs = [{"id": 1, "body": f"{MARK}\nmine", "user": {"type": "User"}}]
    httpserver.expect_ordered_request(
        "/repos/o/r/issues/7/comments", method="GET", headers={"Authorization": "Bearer ghs_x"}
    ).respond_with_json(theirs)
    httpserver.expect_ordered_request(
        "/repos/o/r/issues/7/comments", method="POST", json={"body": f"{MARK}\n# hubaudit\n"}
    ).respond_with_json({"id": 2})
    done = comment(runner, httpserver, {"pull_request": {"number": 7}})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    httpserver.check()
    assert len(httpserver.log) == 2


def test_the_comment_is_renewed(runner: Path, httpserver: HTTPServer) -> None:
    """The one that stands on the second page is found and changed, not added to."""
    page = [{"id": number, "body": "x", "user": {"type": "User"}} for number in range(100)]
    own = [{"id": 555, "body": f"{MARK}\nold", "user": {"type": "Bot"}}]
    httpserver.expect_ordered_request(
        "/repos/o/r/issues/7/comments", method="GET", query_string="per_page=100&page=1"
    ).respond_with_json(page)
    httpserver.expect_ordered_request(
        "/repos/o/r/issues/7/comments", method="GET", query_string="per_page=100&page=2"
    ).respond_with_json(own)
    httpserver.expect_ordered_request("/repos/o/r/issues/comments/555", method="PATCH").respond_with_json({})
    assert comment(runner, httpserver, {"pull_request": {"number": 7}}).returncode == 0
    httpserver.check()
    assert len(httpserver.log) == 3


def test_a_fork_has_no_token(runner: Path, httpserver: HTTPServer) -> None:
    """Refused by GitHub: a warning, and the job goes on. Without a pull request nobody is asked."""
    httpserver.expect_request("/repos/o/r/issues/7/comments").respond_with_json({"message": "no"}, status=403)
    done = comment(runner, httpserver, {"pull_request": {"number": 7}})
    assert (done.returncode, done.stdout.startswith("::warning")) == (0, True)
    asked = len(httpserver.log)
    assert comment(runner, httpserver, {"push": {}}).returncode == 0
    assert len(httpserver.log) == asked


# --- what the files may not hold -----------------------------------------------------------------------------------------


def steps_of(path: Path) -> list[dict[str, Any]]:
    """All steps of a workflow, or of the action."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "runs" in content:
        return list(content["runs"]["steps"])
    return [step for job in content["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", [ROOT / "action.yml", *WORKFLOWS], ids=lambda path: path.name)
def test_no_expression_in_a_script(path: Path) -> None:
    """Values reach scripts by environment: an expression inside one would be code of whoever chose the value."""
    assert not [step["run"] for step in steps_of(path) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("path", [ROOT / "action.yml", *WORKFLOWS], ids=lambda path: path.name)
def test_what_is_used_is_pinned(path: Path) -> None:
    """By the 40 digits of a commit, or it is this repository's own."""
    used = [step["uses"] for step in steps_of(path) if "uses" in step]
    assert all(one == "./" or re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", one) for one in used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_least_permissions(path: Path) -> None:
    """Nothing for the workflow, reading for its jobs; the one that publishes proves who it is, in an environment of its own, and reads no contents."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["permissions"] == {}
    publishing = {"id-token": "write", "attestations": "write"}
    for job in content["jobs"].values():
        assert job["permissions"] == (publishing if "environment" in job else {"contents": "read"})
    environments = [job for job in content["jobs"].values() if "environment" in job]
    assert len(environments) == (path.name == "release.yml")


def test_every_input_is_used_and_documented() -> None:
    """Each reaches a step, and says what it is."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for name, one in ACTION["inputs"].items():
        assert one["description"]
        assert f"inputs.{name}" in text.partition("runs:")[2]


def test_the_pre_commit_hooks() -> None:
    """Both are commands of ours, on cards, one process for all of them."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["entry"].split()[:2] for hook in hooks] == [["hubaudit", "card"]] * 2
    assert all(
        re.search(hook["files"], "models/a/README.md") and not re.search(hook["files"], "NOREADME.md") for hook in hooks
    )
    assert all(hook["require_serial"] for hook in hooks)
