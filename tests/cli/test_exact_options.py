"""--exact without its libraries, and options that need it, end in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

_BUNDLE = Path(__file__).parents[2] / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz"


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hubaudit", str(_BUNDLE), *words], capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed here")
def test_without_torch_one_line_says_what_to_install() -> None:
    """No traceback, no half answer: the extra's name."""
    run = _run("--exact")
    assert run.returncode == 2
    assert run.stderr.splitlines() == [
        "error: --exact needs torch and transformers, which are not installed",
        "",
        "hint: pip install 'hubaudit[exact]'",
    ]


@pytest.mark.parametrize("words", [("--timeline", "x.svg"), ("--memory-snapshot", "x.pickle")])
def test_pictures_of_a_run_need_the_run(words: tuple[str, str]) -> None:
    """A timeline without --exact would be of nothing."""
    run = _run(*words)
    assert run.returncode == 2
    assert "is for --exact" in run.stderr


def test_a_timeline_is_a_picture() -> None:
    """The file's name says which kind, before anything is read."""
    run = _run("--exact", "--timeline", "x.txt")
    assert run.returncode == 2
    assert ".svg or .html" in run.stderr


def test_the_wire_has_no_exact_block_where_it_was_not_asked_for() -> None:
    """The block is additive: what did not ask sees no change."""
    assert "exact" not in json.loads(_run("--json").stdout)
