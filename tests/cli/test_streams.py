"""Standard streams that are closed, full or not what is said: nothing is lost in silence, and nothing is an internal error."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

if TYPE_CHECKING:
    from pathlib import Path

#: Standard error keeps what could not be written, and tries again at the end, unless Python is told otherwise.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
GPT2 = str(ROOT / "fixtures" / "bundles" / "gpt2.json.gz")


def _shell(words: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Runs ``hubaudit`` with these words and redirections, in ``folder``."""
    command = f"{sys.executable} -m hubaudit {words}"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, check=False, timeout=180, cwd=folder, env=BUFFERED
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{GPT2} >&-", "cannot write standard output: Bad file descriptor"),
        (f"{GPT2} --json >&-", "cannot write standard output: Bad file descriptor"),
        (f"{GPT2} >/dev/full", "cannot write standard output: No space left on device"),
        (f"compare {GPT2} {GPT2} >&-", "cannot write standard output: Bad file descriptor"),
        (f"badge {GPT2} >/dev/full", "cannot write standard output: No space left on device"),
        (f"badge {GPT2} -o /dev/full", "cannot write `/dev/full`: No space left on device"),
        ("gpus >/dev/full", "cannot write: No space left on device"),
        ("--help >/dev/full", "cannot write: No space left on device"),
        ("schema >&-", "cannot write: Bad file descriptor"),
        ("batch - -o run <&-", "cannot read standard input: it is closed"),
    ],
)
def test_a_stream_that_is_of_no_use(words: str, said: str, tmp_path: Path) -> None:
    """One line and exit code 2."""
    run = _shell(words, tmp_path)
    assert run.returncode == 2, run.stderr
    assert f"error: {said}" in run.stderr.decode().splitlines()
    assert "internal" not in run.stderr.decode()
    assert "Exception" not in run.stderr.decode()


@pytest.mark.parametrize("words", [f"{GPT2} -o out.json --json >&-", f"{GPT2} --json >out.json 2>&- <&-"])
def test_a_stream_that_nobody_needs_may_be_closed(words: str, tmp_path: Path) -> None:
    """As services and cron start programs: the answer goes where it was asked to go."""
    run = _shell(words, tmp_path)
    assert (run.returncode, run.stderr) == (0, b"")
    assert (tmp_path / "out.json").read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full"])
def test_a_failure_that_cannot_be_told_has_its_exit_code(stream: str, tmp_path: Path) -> None:
    """Nobody hears the reason; scripts see the same number."""
    assert _shell(f"nobody/nothing --offline {stream}", tmp_path).returncode == 4


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """A shell may stand in a folder that somebody removed: there are no settings, and an audit needs none."""
    command = f"cd gone && rmdir ../gone && {sys.executable} -m hubaudit {GPT2} --json"
    (tmp_path / "gone").mkdir()
    run = subprocess.run(["bash", "-c", command], capture_output=True, check=False, cwd=tmp_path, env=os.environ)
    assert (run.returncode, run.stderr) == (0, b"")
