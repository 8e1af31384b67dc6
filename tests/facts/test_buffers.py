"""Tables and masks that a class makes while it is loaded: their bytes against transformers' own modules, and what is said where a config does not tell."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.data import table, text_of
from hubaudit.data.by_row import toml_by_key
from hubaudit.estimate.expression import evaluate, names_in
from hubaudit.facts.buffers import TABLE, is_one_of, made_buffers, of_layers
from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.skeleton_expressions import compiled
from hubaudit.types import MadeBuffer, Sourced

ROWS = {name: row for name, row in table(TABLE).items() if name != "alike"}
#: What transformers 5.23.0 makes on the meta device of the class's default configuration in bfloat16, which is that of the published model it names.
IN_BF16 = [
    ("gpt_neo", "GPTNeoForCausalLM", 100_663_296), ("gptj", "GPTJForCausalLM", 14_680_064), ("codegen", "CodeGenForCausalLM", 14_680_064),
    ("gpt_bigcode", "GPTBigCodeForCausalLM", 1_048_576), ("openai-gpt", "OpenAIGPTLMHeadModel", 6_291_456), ("imagegpt", "ImageGPTModel", 25_165_824),
    ("m2m_100", "M2M100ForConditionalGeneration", 4_202_496), ("xglm", "XGLMForCausalLM", 4_198_400),
    ("speech_to_text", "Speech2TextForConditionalGeneration", 3_073_024 + 525_312),
    ("seamless_m4t", "SeamlessM4TModel", 2 * 2_101_248 + 16_775_168 + 4_198_400), ("seamless_m4t", "SeamlessM4TForSpeechToText", 16_775_168 + 2_101_248),
    ("seamless_m4t_v2", "SeamlessM4Tv2ForTextToSpeech", 4 * 8_392_704), ("seamless_m4t_v2", "SeamlessM4Tv2ForSpeechToText", 8_392_704),
    ("speecht5", "SpeechT5ForTextToSpeech", 691_200 + 6_144_000), ("speecht5", "SpeechT5ForSpeechToText", 6_150_144 + 697_344), ("speecht5", "SpeechT5Model", 0),
    ("wav2vec2-conformer", "Wav2Vec2ConformerModel", 15_358_464), ("wav2vec2-bert", "Wav2Vec2BertModel", 0),
    ("fastspeech2_conformer", "FastSpeech2ConformerModel", 2 * 7_679_232), ("levit", "LevitModel", 1_397_440), ("swin", "SwinModel", 230_496),
    ("swinv2", "Swinv2Model", 230_496), ("swin2sr", "Swin2SRModel", 1_179_648 + 32_400), ("pp_doclayout_v4", "PPDocLayoutV4Model", 540_000),
    ("fun_asr_nano_encoder", "FunAsrNanoEncoder", 4_589_760), ("granite_docling_vision", "GraniteDoclingVisionModel", 262_144 + 1_048_576),
    ("llama", "LlamaForCausalLM", 0), ("gpt2", "GPT2LMHeadModel", 0), ("bert", "BertModel", 0),
]  # fmt: skip


def made(**config: Any) -> tuple[MadeBuffer, ...]:
    """The buffers of a config."""
    architectures = config.get("architectures")
    return made_buffers(ConfigReader(config), architectures[0] if architectures else None)


def size(buffers: tuple[MadeBuffer, ...], bits: int) -> int:
    """Bytes of all of them in a model that is loaded in so many bits."""
    inputs = [{name: one.value or 0 for name, one in buffer.inputs.items()} for buffer in buffers]
    assert all(one.value is not None for buffer in buffers for one in buffer.inputs.values())
    return sum(evaluate(one.formula, have | {"dtype_bits": bits}) for one, have in zip(buffers, inputs, strict=True))


@pytest.mark.parametrize(("model_type", "architecture", "expected"), IN_BF16)
def test_bytes_are_those_of_transformers(model_type: str, architecture: str, expected: int) -> None:
    """Every class makes as much as transformers' own module of the same configuration holds and does not save."""
    assert size(made(model_type=model_type, architectures=[architecture]), 16) == expected


@pytest.mark.parametrize(
    ("model_type", "times"), [("speech_to_text", 2), ("openai-gpt", 2), ("gpt_neo", 1), ("gptj", 1), ("swin", 1)]
)
def test_what_follows_the_dtype_of_the_weights(model_type: str, times: int) -> None:
    """Tables made in torch's default dtype are twice as large in float32; masks, indices and tables made in float32 are not."""
    buffers = made(model_type=model_type)
    assert size(buffers, 32) == times * size(buffers, 16)


def test_sections_are_read_as_their_own_model_type() -> None:
    """MusicGen's decoder lies in a section: 2,048 positions of 1,024 values; other sections have none."""
    config = {"model_type": "musicgen", "architectures": ["MusicgenForConditionalGeneration"]}
    sections = {"decoder": {"model_type": "musicgen_decoder"}, "text_encoder": {"model_type": "t5"}}
    (found,) = made(**config, **sections)
    assert size((found,), 16) == 4_194_304
    assert {name: one.where for name, one in found.inputs.items()} == {
        "decoder_positions": "default:musicgen_decoder", "decoder_width": "default:musicgen_decoder"
    }  # fmt: skip


def test_a_backbone_of_another_type_has_none_of_them() -> None:
    """Mask2Former takes a Swin or a ResNet; only Swin has indices."""
    config = {"model_type": "mask2former", "architectures": ["Mask2FormerForUniversalSegmentation"]}
    assert made(**config, backbone_config={"model_type": "resnet"}) == ()
    swin = {"model_type": "swin", "depths": [2, 2, 18, 2], "window_size": 12}
    assert size(made(**config, backbone_config=swin), 16) == 8 * 24 * 12**4


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "gpt_neo", "num_layers": "many"}, "num_layers"),
        ({"model_type": "seamless_m4t"}, "names no class"),
        ({"model_type": "kosmos-2", "architectures": ["Kosmos2ForConditionalGeneration"]}, "no text_config"),
        ({"model_type": "swinv2", "architectures": ["Swinv2Model"], "depths": [2, 2, 2]}, "depths"),
        ({"model_type": "gptj", "n_positions": -1}, "n_positions"),
        ({"model_type": "wav2vec2-conformer", "position_embeddings_type": {}, "hidden_size": None}, ""),
        ({"model_type": "swin", "depths": [2, "x"]}, "depths"),
    ],
)
def test_what_a_config_does_not_tell_is_unknown(config: dict[str, Any], reason: str) -> None:
    """An input without a value says why; nothing is taken for granted, and no config makes it raise."""
    unknown = [one.where for buffer in made(**config) for one in buffer.inputs.values() if one.value is None]
    assert bool(unknown) == bool(reason)
    assert not reason or any(reason in where for where in unknown)


def test_sections_within_sections_come_to_an_end() -> None:
    """A file may nest a wrapper in itself as often as it likes; what lies deeper than any real model's is not looked at."""
    swin = {"model_type": "swin"}
    config: dict[str, Any] = swin
    for _ in range(900):
        config = {"model_type": "encoder-decoder", "encoder": config, "decoder": swin}
    assert len(made(**config)) <= 2**4


@pytest.mark.parametrize("architecture", ["MyGPTForCausalLM", "LlamaForCausalLM", ""])
def test_classes_of_others_make_what_nobody_knows(architecture: str) -> None:
    """The rows are of transformers' own classes."""
    assert made(model_type="gpt_neo", architectures=[architecture]) == ()


def test_a_stage_makes_the_masks_of_its_own_layers() -> None:
    """GPT-Neo has a mask a layer; M2M-100's tables do not depend on layers."""
    half = Sourced(value=12, where="rule:two stages")
    assert size(of_layers(made(model_type="gpt_neo"), half), 16) == 100_663_296 // 2
    assert of_layers(made(model_type="m2m_100"), half) == made(model_type="m2m_100")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("transformer.h.3.attn.attention.bias", True), ("h.0.attn.attention.bias", True), ("transformer.h.0.attn.attention.k_proj.bias", False),
        ("transformer.h.0.attn.attention.bias.x", False), ("xattn.attention.bias", False),
    ],
)  # fmt: skip
def test_modules_call_them_so(name: str, is_one: bool) -> None:
    """The end of a buffer's full name tells it."""
    assert is_one_of(name, made(model_type="gpt_neo")) is is_one


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from([0, 1, 2**53, 2**54, 10**30, "relative"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["depths", "hidden_size"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip
_KEYS = sorted({key for row in ROWS.values() for text in row.get("inputs", {}).values() for key in re.findall(r"\w+", text)})  # fmt: skip


@given(name=st.sampled_from(sorted(ROWS)), said=st.dictionaries(st.sampled_from(_KEYS), _ANY, max_size=5), section=_ANY)
def test_no_configuration_makes_it_raise(name: str, said: dict[str, Any], section: Any) -> None:
    """Whatever a file holds under the keys that the rows read, every input has a count that is none below 0, or a reason."""
    row = ROWS[name]
    sections = dict.fromkeys(row.get("sections", ()), section)
    for buffer in made(model_type=name, **said, **sections):
        for one in buffer.inputs.values():
            assert one.where if one.value is None else 0 <= one.value <= 2**53
        if all(one.value is not None for one in buffer.inputs.values()):
            assert size((buffer,), 16) >= 0


@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows_are_whole(name: str) -> None:
    """Every row has a source and classes; every formula is an integer formula over its inputs; every input is used; every expression is one."""
    row = ROWS[name]
    assert row["classes"]
    used = {one for buffer in row.get("buffer", ()) for one in names_in(buffer["formula"])} - {"dtype_bits"}
    assert used == set(row.get("inputs", ()))
    for text in (*row.get("inputs", {}).values(), *(one["when"] for one in row.get("buffer", ()) if "when" in one)):
        compiled(text)
    if row.get("buffer"):
        assert row["source"].startswith("models/")
    else:
        assert row["sections"]


def test_every_alias_names_a_row() -> None:
    """A model type that stands for another's row is none of the rows itself."""
    alike = toml_by_key(text_of(TABLE))["alike"]
    assert set(alike.values()) <= ROWS.keys()
    assert not alike.keys() & ROWS.keys()
