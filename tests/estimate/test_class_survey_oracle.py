"""Classes that no table describes, as transformers makes and saves them: nothing false is found, and the modules that quantizers convert are told."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from hubaudit.data import table

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("bitsandbytes")

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).resolve().parents[2]


def _tool(name: str) -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(f"tools.{name}")
    finally:
        sys.path.remove(str(ROOT))


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    class_survey, by_design, linear_names = (_tool(name) for name in ("class_survey", "by_design", "linear_names"))
    logging.disable(logging.NOTSET)

#: Model types and one class of each whose own numbers are of something else; tools/by_design.py goes through all types.
DIFFERENT = [
    ("convbert", "ConvBertForMaskedLM"), ("mobilebert", "MobileBertForMaskedLM"), ("moshi", "MoshiForCausalLM"), ("ultrabert", "UltrabertForMaskedLM"),
    ("ultravbert", "UltraVBertForMaskedLM"), ("musicgen", "MusicgenForConditionalGeneration"), ("kyutai_speech_to_text", "KyutaiSpeechToTextForConditionalGeneration"),
    ("csm", "CsmForConditionalGeneration"),
]  # fmt: skip
#: Heads that are no copies of the embedding, layers of two kinds in equal numbers.
ALIKE = [
    ("bigbird_pegasus", "BigBirdPegasusForCausalLM"), ("luke", "LukeForMaskedLM"), ("pop2piano", "Pop2PianoForConditionalGeneration"),
    ("zamba2", "Zamba2ForCausalLM"), ("pegasus", "PegasusForConditionalGeneration"),
    ("t5gemma", "T5GemmaModel"),
]  # fmt: skip
#: Tables that are called otherwise, layers of their own classes, whole parts that stay in float32, tied modules, Conv1D.
TOLD_BY_NAME = [
    ("kosmos-2.5", "Kosmos2_5ForConditionalGeneration"), ("ibert", "IBertForMaskedLM"), ("fsmt", "FSMTForConditionalGeneration"),
    ("blip-2", "Blip2ForConditionalGeneration"), ("marian", "MarianMTModel"), ("ctrl", "CTRLLMHeadModel"),
    ("csm", "CsmForConditionalGeneration"), ("convbert", "ConvBertForMaskedLM"), ("switch_transformers", "SwitchTransformersForConditionalGeneration"),
    ("cohere_asr", "CohereAsrForConditionalGeneration"), ("aimv2_vision_model", "Aimv2VisionModel"),
]  # fmt: skip


@pytest.fixture(scope="module")
def layers() -> dict[str, Any]:
    """Configurations that were made shallow already."""
    return {}


@pytest.mark.parametrize(("model_type", "class_name"), DIFFERENT)
def test_types_that_differ_by_design_are_those_of_the_table(
    model_type: str, class_name: str, layers: dict[str, Any]
) -> None:
    """What transformers makes and saves differs from its config as the table says, so an audit finds nothing wrong with it."""
    model = class_survey.built(model_type, class_name, layers)
    assert by_design.subjects(model) == table("by_design.json")["types"][model_type]
    assert class_survey.row(model_type, class_name, layers)["findings"] == []


@pytest.mark.parametrize(("model_type", "class_name"), ALIKE)
def test_others_differ_in_nothing(model_type: str, class_name: str, layers: dict[str, Any]) -> None:
    """No finding, and every tensor that the class builds is loaded, but those without dimensions, which nobody counts."""
    found = class_survey.row(model_type, class_name, layers)
    assert found["findings"] == []
    assert 0 <= found["parameters"] - found["loaded"] <= 2


@pytest.mark.parametrize(("model_type", "class_name"), TOLD_BY_NAME)
def test_what_names_hide_is_in_the_table(model_type: str, class_name: str, layers: dict[str, Any]) -> None:
    """Made anew the lists are the table's, and nf4 and int8 take what bitsandbytes' own modules would take, within two percent."""
    names = linear_names.names(class_survey.built(model_type, class_name, layers))
    (row,) = (row for row in table("linear_names.json")["rows"] if class_name in row["architectures"])
    assert (names["kept"], names["converted"]) == (row["kept"], row["converted"])
    found = class_survey.row(model_type, class_name, layers)
    for quant in class_survey.QUANTS:
        told = found[quant]
        assert not found["is_built"]
        assert told["ours"] == pytest.approx(told["theirs"], rel=0.02)
        assert told["low"] <= told["theirs"] <= told["high"]
