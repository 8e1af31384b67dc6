"""The page on accuracy is made of the measurements that are kept, and the matrix for a GPU names every way to run."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest
from fixture_models import ROOT

from hubaudit.verify.job import check
from hubaudit.verify.record import read

if TYPE_CHECKING:
    from types import ModuleType


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_tool", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ACCURACY = _tool("accuracy")
POINTS = cache(ACCURACY.points)


_PERCENT = re.compile(r"([+-][0-9.]+) %")


def _rows(text: str) -> dict[str, list[float]]:
    """Each run's errors, by its figure and name."""
    rows = (line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "%" in line)
    return {" ".join(cells[:2]): [float(one) for one in _PERCENT.findall(" ".join(cells))] for cells in rows}


def test_the_page_is_todays() -> None:
    """The same runs, each error within a point of today's, so that a hair's change of a formula needs no new page: python -m tools.accuracy."""
    written, made = _rows((ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")), _rows(ACCURACY.page())
    peaks = {name for name in made if name.startswith("| max")}
    assert peaks
    assert peaks <= written.keys()
    for name in made.keys() & written.keys():
        assert made[name] == pytest.approx(written[name], abs=1), name


def test_ours_and_cited_ones_are_both_read_worst_first() -> None:
    """Every source is there; the errors fall."""
    found = POINTS()
    assert {one.source for one in found} >= {"storages on the CPU", "RTX 4080, cited", "L40S, cited"}
    errors = [abs(one.formula_error) for one in found]
    assert errors == sorted(errors, reverse=True)


def test_every_family_is_held_against_exact_mode() -> None:
    """Each fixture has a row in the record or a reason why not, and the errors of each figure fall."""
    record = _tool("exact_accuracy")
    assert {row["family"] for row in record.recorded()} == set(record.families())
    for name in ("max_allocated", "max_reserved"):
        errors = [abs(one.formula_error) for one in ACCURACY.exact_points() if one.component == name]
        assert errors == sorted(errors, reverse=True)
        assert len(errors) > 20


def test_records_hold_what_is_needed_to_repeat_them() -> None:
    """Config, workload, versions; each follows the schema; reserved bytes of the CPU are not called measured on the page."""
    records = read(ROOT / "fixtures" / "measured" / "cpu.jsonl")
    assert {record["config"]["model_type"] for record in records} == {
        "llama", "mixtral", "t5", "mamba", "qwen2", "qwen2_moe", "gpt2",
    }  # fmt: skip
    assert all(record["environment"]["libraries"]["torch"] for record in records)
    assert not [one for one in POINTS() if one.component == "max_reserved" and "CPU" in one.source]


def test_formula_and_exact_meet_the_records() -> None:
    """Weights of every record within the rounding of their tensors; the formula is a lower bound wherever it says that it lacks something."""
    for one in POINTS():
        if one.component == "weights":
            assert abs(one.formula_error) < 0.5, one
            assert one.exact is None or one.exact == one.measured
        if one.lacks:
            assert one.formula_error < 0, one


def test_the_matrix_covers_what_it_promises() -> None:
    """At least six geometries up to 8 billion parameters; three ways to hold weights, six to run; all are workloads that verify runs."""
    matrix = _tool("gpu_matrix")
    ways = dict(matrix.cases(1024, 512, 16))
    assert len(matrix.GEOMETRIES) >= 6
    for name in matrix.GEOMETRIES:
        assert matrix.snapshot(name).configs["config.json"]["model_type"]
    assert {name.split()[0] for name in ways} == {"bf16", "int8", "nf4"}
    words = {name.partition(" ")[2] for name in ways}
    assert words == {"prefill", "generate", "train", "train checkpointing", "lora", "qlora"}
    for workload in ways.values():
        check(workload)
