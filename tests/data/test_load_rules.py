"""The table of what transformers does to single tensors while it loads."""

from __future__ import annotations

import importlib.util

import pytest
from fixture_models import ROOT

from hubaudit.data import table

PATH = ROOT / "tools" / "load_rules.py"


@pytest.mark.oracle
@pytest.mark.filterwarnings(
    "ignore:.torch.jit:DeprecationWarning"
)  # some of all the classes that are imported here use it
def test_the_table_is_that_of_the_installed_transformers() -> None:
    """Regenerating load_rules.json changes nothing."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("load_rules_tool", PATH)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.rules() == table("load_rules.json")


def test_known_rows() -> None:
    """DeepSeek-V3's routing bias stays float32 always, T5's `wo` under float16 only (modeling files of transformers 5.23.0)."""
    rows = table("load_rules.json")["architectures"]
    assert rows["DeepseekV3ForCausalLM"]["fp32_always"] == ["e_score_correction_bias"]
    assert rows["T5ForConditionalGeneration"] == {"fp32_under_fp16": ["wo"]}
