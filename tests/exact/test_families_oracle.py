"""A sample of the families in their ways is traced anew and held against what torch's CUDA build reported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("bitsandbytes")

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("default")]


@pytest.fixture(name="families")
def _families() -> Iterator[Any]:
    """The tool that recorded them."""
    sys.path.insert(0, str(_ROOT))
    try:
        yield importlib.import_module("tools.exact_families")
    finally:
        sys.path.remove(str(_ROOT))


@pytest.mark.parametrize(
    ("family", "way"),
    [
        ("mixtral", "AMP"),
        ("qwen2", "QLoRA"),
        ("gemma2", "int8"),
        ("llama", "generate"),
        ("gemma2", "static cache"),
        ("t5", "static cache"),
        ("gpt2", "beams"),
        ("mixtral", "beams, static cache"),
        ("qwen2", "samples"),
        ("bert", "LoRA"),
    ],
)
def test_a_family_in_a_way_is_equal_at_every_mark(families: Any, family: str, way: str) -> None:
    """Allocated, reserved and both peaks, after each phase, to the byte."""
    cell = families.Cell(family, way)
    assert families.traced(cell) == families.recorded()[cell]["marks"]
