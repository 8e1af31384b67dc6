"""A sample of the survey of model types is traced anew and held against what torch's CUDA build reported."""

from __future__ import annotations

import importlib
import re
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


def test_replaced_functions_are_called_by_the_types_that_say_so(survey: Any) -> None:
    """Other types' traces do not depend on them: no other model's code names them."""
    import transformers

    words = {"norm": re.compile(r"(?:F|functional|torch)\.rms_norm\(|nn\.RMSNorm\b")}
    types = {case.model_type for case in survey.read(survey.RECORDED)}
    folder = Path(transformers.__file__).parent / "models"
    for name, pattern in words.items():
        found = {path.parent.name for path in folder.glob("*/modeling_*.py") if pattern.search(path.read_text("utf-8"))}
        assert found & types <= set(survey.ONLY_OF[name])
    assert all(row["code"] == survey.code_digest(case.model_type) for case, row in _both(survey))


def _both(survey: Any) -> Iterator[tuple[Any, Any]]:
    """The traced rows of runs that the stub device ran."""
    recorded = survey.read(survey.RECORDED)
    return ((case, row) for case, row in survey.read(survey.TRACED).items() if "marks" in recorded[case])


@pytest.mark.parametrize(
    "name",
    [
        "qwen2_moe causal infer",
        "yoso masked train",
        "voxtral seq2seq train",
        "inkling_text causal train",
        "diffllama causal train",
        "longt5 seq2seq train",
    ],
)
def test_a_run_of_the_survey_is_equal_at_every_mark(survey: Any, name: str) -> None:
    """Allocated, reserved and both peaks, after each stretch, to the byte."""
    recorded = {case.name: (case, row) for case, row in survey.read(survey.RECORDED).items()}
    case, row = recorded[name]
    assert survey.traced(case) == row["marks"]
