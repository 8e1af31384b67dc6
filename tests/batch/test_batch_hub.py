"""Whole runs against the local Hub: requests, quotas, faults, kills, and what the second run does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from local_hub import LocalHub, LocalRepo
from small_repos import CONFIG, PARAMETERS, asked, one_file, sharded

from hubaudit import cli
from hubaudit.batch.journal import Rows

if TYPE_CHECKING:
    from pathlib import Path


def batch(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit code of one run in this process."""
    monkeypatch.setattr(sys, "argv", ["hubaudit", "batch", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0  # type: ignore[return-value]


def states(folder: Path) -> dict[str, str]:
    """How each model ended."""
    with Rows(folder) as rows:
        return {row["name"]: row["state"] for row in rows}


def listed(folder: Path, *names: str) -> Path:
    """A file with these names."""
    file = folder / "list.txt"
    file.write_text("".join(f"{name}\n" for name in names))
    return file


def adapter(repo_id: str, base: str) -> LocalRepo:
    """An adapter without weights, which names its base."""
    return LocalRepo(
        repo_id, {"adapter_config.json": json.dumps({"peft_type": "LORA", "base_model_name_or_path": base})}
    )


def test_many_workloads_and_devices_from_one_fetch(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workloads on two devices cost the five requests of one audit; the second run costs none."""
    local_hub.add(one_file())
    words = (listed(tmp_path, "org/one"), "-o", tmp_path / "run", "--gpu", "4090", "--memory", "1GiB")
    asks = ("--workload", "batch_size=2", "--workload", "batch_size=8,prompt_tokens=100", "--workload", "quant=nf4")
    assert batch(monkeypatch, *words, *asks) == 0
    assert len(local_hub.requests) == 5
    with Rows(tmp_path / "run") as rows:
        (row,) = rows
    document = row["document"]
    assert document["facts"]["parameters"]["total"] == PARAMETERS
    assert [audit["workload"]["batch_size"] for audit in document["audits"]] == [2, 8, 1]
    assert [audit["workload"]["quant"] for audit in document["audits"]] == [None, None, "nf4"]
    assert all(len(audit["fit"]) == 2 for audit in document["audits"])
    local_hub.reset_log()
    assert batch(monkeypatch, *words, *asks) == 0
    assert local_hub.requests == []


def test_a_warm_run_asks_one_question_a_model_or_none(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a new directory the cache answers: after one question, after a listing's, or within --max-age after none; word for word."""
    names = [f"org/m{number}" for number in range(5)]
    for name in names:
        local_hub.add(one_file(name))
    file = listed(tmp_path, *names)
    assert batch(monkeypatch, file, "-o", tmp_path / "cold") == 0
    assert len(local_hub.requests) == 25
    local_hub.reset_log()
    assert batch(monkeypatch, file, "-o", tmp_path / "warm") == 0
    assert asked(local_hub) == ["info"] * 5
    local_hub.reset_log()
    assert batch(monkeypatch, "--author", "org", "-o", tmp_path / "listing") == 0
    assert asked(local_hub) == ["/api/models"]
    local_hub.reset_log()
    assert batch(monkeypatch, file, "-o", tmp_path / "lately", "--max-age", "1h") == 0
    assert batch(monkeypatch, file, "-o", tmp_path / "offline", "--offline") == 0
    assert asked(local_hub) == []
    documents = []
    for run in ("cold", "warm", "listing", "lately", "offline"):
        with Rows(tmp_path / run) as rows:
            documents.append([row["document"] for row in rows])
    assert all(one == documents[0] for one in documents)


def test_no_model_is_fetched_twice(local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that is listed twice, nor a base that many adapters name, nor one that a URL names too."""
    local_hub.add(one_file())
    names = [f"org/lora{number}" for number in range(6)]
    for name in names:
        local_hub.add(adapter(name, "org/one"))
    batch(
        monkeypatch,
        listed(tmp_path, *names, "org/one", "org/one", f"{local_hub.endpoint}/org/one"),
        "-o",
        tmp_path / "run",
    )
    assert len([name for name in asked(local_hub) if name == "cdn model.safetensors"]) == 1
    assert len([request for request in local_hub.requests if request.path == "/api/models/org/one"]) == 1


def test_a_listing_tells_the_commits(local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model is read at the commit that was listed, even if its branch has moved since; the query is sent as it was asked."""
    repos = [local_hub.add(one_file(f"org/m{number}")) for number in range(3)]
    local_hub.add(one_file("other/m"))
    before = {repo.repo_id: repo.sha for repo in repos}
    local_hub.fault("changed_commit", "/api/models/org/m1/revision", times=1, files={"config.json": json.dumps(CONFIG)})
    words = (
        "--author",
        "org",
        "--search",
        "m",
        "--filter",
        "llama",
        "--sort",
        "likes",
        "--limit",
        "2",
        "-o",
        tmp_path / "run",
    )
    assert batch(monkeypatch, *words) == 0
    with Rows(tmp_path / "run") as rows:
        found = {row["name"]: row["document"]["subject"]["commit"] for row in rows}
    assert found == {name: before[name] for name in ("org/m0", "org/m1")}
    query = local_hub.requests[0].params
    assert query == {
        "author": ["org"],
        "search": ["m"],
        "filter": ["llama"],
        "sort": ["likes"],
        "limit": ["2"],
        "expand": ["sha"],
    }


def test_a_collection(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its models, in its order, and no data set; one that is not there is said."""
    local_hub.add(one_file("org/a"))
    local_hub.add(one_file("org/b"))
    local_hub.routes.collections["org/best-1"] = [("model", "org/b"), ("dataset", "org/data"), ("model", "org/a")]
    assert batch(monkeypatch, "--collection", "org/best-1", "-o", tmp_path / "run") == 0
    assert list(states(tmp_path / "run")) == ["org/b", "org/a"]
    capsys.readouterr()
    assert batch(monkeypatch, "--collection", "org/none-2", "-o", tmp_path / "none") == 3
    assert "error: no collection `org/none-2`" in capsys.readouterr().err


def test_failures_are_rows_with_a_reason_and_a_class(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each kind as it is; the exit code is the worst one's; what passes by itself is tried again by the next run, the rest is not."""
    (tmp_path / "away" / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "away" / "a" / "b")  # so that `../..` is a folder without a model
    local_hub.add(one_file())
    local_hub.add(one_file("org/gated", gated="manual"))
    local_hub.add(one_file("org/down"))
    local_hub.add(LocalRepo("org/empty", {"README.md": "# nothing"}))
    broken = local_hub.fault("status", "/org/down", status=503)
    names = ("org/one", "org/gated", "org/down", "org/empty", "org/missing", "not a name", "../..", "x" * 5000)
    words = (listed(tmp_path, *names), "-o", tmp_path / "run", "--format", "csv", "--format", "markdown")
    assert batch(monkeypatch, *words) == 4
    found = states(tmp_path / "run")
    assert found == {
        **dict.fromkeys(names, "never"),
        "org/one": "audited",
        "org/gated": "access",
        "org/down": "later",
    }
    with Rows(tmp_path / "run") as rows:
        errors = {row["name"]: row["document"].get("error") for row in rows}
    assert errors["org/empty"]["kind"] == "cannot_audit"
    assert errors["org/missing"]["kind"] == "not_found"
    assert all(error["message"] for error in errors.values() if error)
    assert (
        "8 models: 1 audited, 1 failed for now (run it again), 1 need access, 5 cannot be audited"
        in capsys.readouterr().err
    )
    local_hub.clear_faults()
    local_hub.reset_log()
    assert local_hub.applied(broken) > 0
    assert batch(monkeypatch, *words) == 3
    assert states(tmp_path / "run")["org/down"] == "audited"
    assert not [request for request in local_hub.requests if "org/down" not in request.label]


def test_the_quota_is_kept_without_a_single_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub that grants 30 API requests in 4 seconds is asked 24 at most in each window, and never answers 429."""
    names = [f"org/m{number}" for number in range(40)]
    with LocalHub(*map(one_file, names), quotas={"api": 30}, window_seconds=4) as hub:
        run_with(hub, monkeypatch, tmp_path, names)
        statuses = [request.status for request in hub.requests]
        infos = sorted(request.started_at for request in hub.requests if request.path.startswith("/api/models/"))
    assert set(states(tmp_path / "run").values()) == {"audited"}
    assert len(infos) == 40
    assert 429 not in statuses


def test_a_quota_that_others_used_up_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 429 stops all until the window is over, and costs no model."""
    names = [f"org/m{number}" for number in range(12)]
    with LocalHub(*map(one_file, names)) as hub:
        hub.fault("status", "/api/models/", status=429, reset_seconds=1, after=4, times=6)
        run_with(hub, monkeypatch, tmp_path, names)
    assert set(states(tmp_path / "run").values()) == {"audited"}


def run_with(hub: LocalHub, monkeypatch: pytest.MonkeyPatch, folder: Path, names: list[str]) -> None:
    """A run in a process of its own, for a Hub that the test made."""
    words = [sys.executable, "-m", "hubaudit", "batch", str(listed(folder, *names)), "-o", str(folder / "run")]
    subprocess.run(words, env=os.environ | {"HF_ENDPOINT": hub.endpoint}, check=True, capture_output=True, timeout=300)


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, local_hub: LocalHub) -> None:
    """A kill −9 in the middle: no row is lost, at most the models under way are read again, none has two rows."""
    names = [f"org/m{number}" for number in range(60)]
    for name in names:
        local_hub.add(one_file(name))
    local_hub.fault("timeout", r"org/m[3-5]\d", seconds=600)  # so that it cannot be over before the signal comes
    words = [
        sys.executable,
        "-m",
        "hubaudit",
        "batch",
        str(listed(tmp_path, *names)),
        "-o",
        str(tmp_path / "run"),
        "-j",
        "4",
    ]
    journal = tmp_path / "run" / "journal.jsonl"
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 10) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = journal.read_bytes().count(b"\n")
    assert 10 <= done <= 30
    local_hub.clear_faults()
    local_hub.reset_log()
    run = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert states(tmp_path / "run") == dict.fromkeys(names, "audited")
    assert journal.read_bytes().count(b"\n") == 60
    assert len([name for name in asked(local_hub) if name == "info"]) == 60 - done
    assert "60 of 60 models" in run.stderr


@pytest.mark.usefixtures("heeding_interrupts")
def test_ctrl_c_keeps_what_is_done(tmp_path: Path, local_hub: LocalHub) -> None:
    """It ends at once, with 130 and whole lines."""
    names = [f"org/m{number}" for number in range(60)]
    for name in names:
        local_hub.add(one_file(name))
    local_hub.fault("timeout", r"org/m[3-5]\d", seconds=600)  # so that it cannot be over before the signal comes
    words = [
        sys.executable,
        "-m",
        "hubaudit",
        "batch",
        str(listed(tmp_path, *names)),
        "-o",
        str(tmp_path / "run"),
        "-j",
        "4",
    ]
    journal = tmp_path / "run" / "journal.jsonl"
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 5) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    assert journal.read_bytes().endswith(b"\n")
    assert 5 <= len(states(tmp_path / "run")) <= 30


def test_what_changed_between_two_runs(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """New commits, parameters, totals and verdicts, models that came and went; what is the same is not told."""
    repo = local_hub.add(one_file())
    local_hub.add(one_file("org/same"))
    local_hub.add(one_file("org/old"))
    words = ("--memory", "300MB")
    batch(monkeypatch, listed(tmp_path, "org/one", "org/same", "org/old"), "-o", tmp_path / "a", *words)
    repo.commit(dict.fromkeys(["config.json"], json.dumps(CONFIG | {"vocab_size": 100_000_000})))
    local_hub.add(one_file("org/new"))
    batch(monkeypatch, listed(tmp_path, "org/one", "org/same", "org/new"), "-o", tmp_path / "b", *words)
    capsys.readouterr()
    assert batch(monkeypatch, "--diff", tmp_path / "a", tmp_path / "b") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines] == [["~", "org/one:"], ["+", "org/new"], ["-", "org/old"]]
    assert "commit " in lines[0]
    assert "vocab_size 128 → 100,000,000" in lines[0]
    assert err == "3 of 3 models changed\n"
    assert batch(monkeypatch, "--diff", tmp_path / "a", tmp_path / "b", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"what": "vocab_size", "from": 128, "to": 100_000_000} in rows[0]["changes"]
    assert batch(monkeypatch, "--diff", tmp_path / "a", tmp_path / "a") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "-o DIR is needed"),
        (("org/one", "-o", "x", "--executor", "cloud"), "no executor `cloud`"),
        (("org/one", "-o", "x", "--workload", "batch_size=0"), "0 is not in the range"),
        (("org/one", "-o", "x", "--workload", "color=red"), "is not KEY=VALUE with one of"),
        (("org/one", "-o", "x", "--max-age", "soon"), "is no time"),
        (("org/one", "-o", "x", "--fail-on", "fit"), "needs --gpu NAME or --memory"),
        (("--collection", "nonsense", "-o", "x"), "no collection|cannot be asked so"),
        (("--collection", "a/b-1", "--sort", "likes", "-o", "x"), "listed whole"),
    ],
)
def test_mistakes_are_said(
    words: tuple[str, ...],
    message: str,
    local_hub: LocalHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, and a usage error's code, or that of what is not there."""
    import re

    monkeypatch.chdir(tmp_path)
    assert batch(monkeypatch, *words) in (2, 3)
    assert re.search(message, capsys.readouterr().err)


def test_fail_on_fit(local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate's code where all were audited and one does not fit."""
    local_hub.add(one_file())
    file = listed(tmp_path, "org/one")
    assert batch(monkeypatch, file, "-o", tmp_path / "a", "--gpu", "4090", "--fail-on", "fit") == 0
    assert batch(monkeypatch, file, "-o", tmp_path / "b", "--memory", "1MB", "--fail-on", "fit") == 10


def test_processes_do_the_same(local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that share no memory give the same rows, word for word."""
    names = ["org/sharded", "org/one", "org/missing"]
    local_hub.add(one_file())
    local_hub.add(sharded())
    file = listed(tmp_path, *names)
    assert batch(monkeypatch, file, "-o", tmp_path / "threads") == 5
    assert (
        batch(
            monkeypatch,
            file,
            "-o",
            tmp_path / "processes",
            "--executor",
            "processes",
            "-j",
            "2",
            "--cache-dir",
            tmp_path / "c",
        )
        == 5
    )
    documents = []
    for run in ("threads", "processes"):
        with Rows(tmp_path / run) as rows:
            documents.append([row["document"] for row in rows])
    assert documents[0] == documents[1]


def test_the_sorts_are_the_hubs() -> None:
    """Those that huggingface_hub knows."""
    from hubaudit.cli.batch import _SORTS
    from hubaudit.hub.listing import SORTS

    assert sorted(_SORTS) == sorted(SORTS)


def test_a_workload_that_does_not_go_with_a_model(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its reason in the row; the others have their estimates; where none goes, the row is a failure."""
    local_hub.add(one_file())
    words = (listed(tmp_path, "org/one"), "--workload", "dtype=int3", "--format", "csv", "--format", "markdown")
    assert batch(monkeypatch, *words, "--workload", "batch_size=2", "-o", tmp_path / "a") == 0
    with Rows(tmp_path / "a") as rows:
        (row,) = rows
    bad, good = row["document"]["audits"]
    assert "cannot compute in dtype `int3`" in bad["error"]["message"]
    assert good["estimate"]["total_bytes"] > 0
    assert batch(monkeypatch, *words, "-o", tmp_path / "b") == 5
