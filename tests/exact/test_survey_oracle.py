"""A sample of the survey of model types is traced anew and held against what torch's CUDA build reported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("default")]


@pytest.fixture(name="survey")
def _survey() -> Iterator[Any]:
    """The tool that made the survey."""
    sys.path.insert(0, str(_ROOT))
    try:
        yield importlib.import_module("tools.exact_survey")
    finally:
        sys.path.remove(str(_ROOT))


@pytest.mark.parametrize(
    "name", ["qwen2_moe causal infer", "yoso masked train", "voxtral seq2seq train", "inkling_text causal train"]
)
def test_a_run_of_the_survey_is_equal_at_every_mark(survey: Any, name: str) -> None:
    """Allocated, reserved and both peaks, after each stretch, to the byte."""
    recorded = {case.name: (case, row) for case, row in survey.read(survey.RECORDED).items()}
    case, row = recorded[name]
    assert survey.traced(case) == row["marks"]
