"""docs/security.md: each threat of its table is tried by a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ROWS = [line for line in (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines() if "::test_" in line]


@cache
def _tests_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_threat_has_a_test(row: str) -> None:
    """What it does is said, and the tests that are named are there."""
    _, threat, answer, tried, _ = row.split("|")
    assert threat.strip()
    assert answer.strip()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tried)
    assert len(named) == tried.count("::")
    for path, function in named:
        assert function in _tests_in(ROOT / path), f"{path} has no {function}"


def test_the_table_is_there() -> None:
    """Every test of this folder stands in it, so that a threat that is tried is one that is told."""
    assert len(_ROWS) > 25
    told = "\n".join(_ROWS)
    files = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in files if f"tests/security/{name}::" not in told} == set()
