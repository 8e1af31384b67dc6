"""The record of mutation testing: every survivor was looked at, every test that it led to is there, and the page shows it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tools.mutation import PAGE, RECORD, page_with_table

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = json.loads(RECORD.read_text(encoding="utf-8"))["samples"]
MUTANTS = [one for sample in SAMPLES for one in sample["mutants"]]


def test_every_survivor_was_looked_at() -> None:
    """It has a test now, or changes nothing, or is left; and why."""
    assert len(MUTANTS) >= 100
    survivors = [one for one in MUTANTS if one["result"] == "survived"]
    for one in survivors:
        assert one["why"], one
        assert one.get("judged") in ("same", "left") or _is_test(one["test"]), one


def test_the_page_shows_the_record() -> None:
    """docs/testing.md has what `python tools/mutation.py --page` writes."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_table(page, json.loads(RECORD.read_text(encoding="utf-8")))


def _is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)
