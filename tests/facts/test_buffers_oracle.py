"""Every row of the table of made buffers, against the buffers that transformers' own modules hold and do not save: on the meta device, and loaded."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from hubaudit.data import table
from hubaudit.estimate.expression import evaluate
from hubaudit.facts.buffers import TABLE, is_one_of, made_buffers
from hubaudit.facts.config_reader import ConfigReader

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

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
    class_survey, meta_caches, meta_cases = map(_tool, ("class_survey", "meta_caches", "meta_cases"))
    logging.disable(logging.NOTSET)

#: Classes that no auto class makes.
_ALSO = [
    ("seamless_m4t", "SeamlessM4TForSpeechToSpeech"), ("seamless_m4t_v2", "SeamlessM4Tv2ForSpeechToSpeech"), ("speecht5", "SpeechT5ForSpeechToSpeech"),
    ("upernet", "UperNetForSemanticSegmentation"),
]  # fmt: skip
#: What a class cannot be built without.
_NEEDED = {"wav2vec2-conformer": {"vocab_size": 40}, "wav2vec2-bert": {"vocab_size": 40}}
#: Values that no default has, for everything that a formula reads.
_OTHERS: dict[str, dict[str, Any]] = {
    "gpt_neo": {
        "attention_layers": ...,"num_layers": 2, "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 96, "hidden_size": 64, "num_heads": 4},
    "gptj": {"n_layer": 3, "n_positions": 72, "rotary_dim": 0, "n_embd": 64, "n_head": 4},
    "codegen": {"n_layer": 3, "n_positions": 72, "rotary_dim": 8, "n_embd": 64, "n_head": 4},
    "gpt_bigcode": {"n_layer": 2, "n_positions": 88, "n_embd": 64, "n_head": 4},
    "openai-gpt": {"n_layer": 2, "n_positions": 88, "n_embd": 64, "n_head": 4},
    "imagegpt": {"n_layer": 2, "n_positions": 88, "n_embd": 64, "n_head": 4},
    "clvp": {"decoder_config.num_hidden_layers": 3, "decoder_config.num_mel_attn_blocks": 2, "decoder_config.max_position_embeddings": 100},
    "m2m_100": {"max_position_embeddings": 50, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1},
    "nllb-moe": {"max_position_embeddings": 50, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1},
    "xglm": {"max_position_embeddings": 50, "d_model": 32, "num_layers": 1},
    "speech_to_text": {"max_source_positions": 70, "max_target_positions": 40, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1},
    "musicgen": {"decoder.max_position_embeddings": 90, "decoder.hidden_size": 64, "decoder.num_hidden_layers": 1},
    "musicgen_melody": {"decoder.max_position_embeddings": 90, "decoder.hidden_size": 64, "decoder.num_hidden_layers": 1},
    "seamless_m4t": {"max_position_embeddings": 60, "max_source_positions": 70, "t2u_max_position_embeddings": 80, "hidden_size": 64, "position_embeddings_type": "rotary"},
    "seamless_m4t_v2": {"max_position_embeddings": 60, "t2u_max_position_embeddings": 80, "hidden_size": 64},
    "speecht5": {"max_text_positions": 60, "max_speech_positions": 80, "hidden_size": 48, "pad_token_id": 3},
    "wav2vec2-conformer": {"max_source_positions": 60, "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 1},
    "wav2vec2-bert": {"max_source_positions": 60, "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 1, "position_embeddings_type": "relative"},
    "fastspeech2_conformer": {"hidden_size": 192},
    "kosmos-2": {"text_config.max_position_embeddings": 60, "text_config.embed_dim": 64, "text_config.layers": 1},
    "kosmos-2.5": {"text_config.max_position_embeddings": 60, "text_config.embed_dim": 64, "text_config.layers": 1},
    "swin": {"depths": [1, 3, 2, 1], "window_size": 5},
    "swin2sr": {"depths": [2, 3], "num_heads": [6, 6], "window_size": 9, "image_size": 6},
    "swinv2": {"depths": [1, 2, 3, 1], "window_size": 12, "image_size": 192},
    "mask2former": {"backbone_config.depths": [1, 1, 2, 1], "backbone_config.window_size": 12},
    "levit": {"image_size": 288, "depths": [2, 3, 1]},
    "canary": {"decoder_config.max_position_embeddings": 96, "decoder_config.hidden_size": 512},
    "fun_asr_nano_encoder": {"max_position_embeddings": 90, "num_mel_bins": 40, "num_stacked_frames": 5},
    "pp_doclayout_v4": {"num_queries": 120},
    "granite_docling_vision": {"image_size": 256, "out_hidden_size": 512, "use_fine_route": False},
}  # fmt: skip


def _types() -> set[str]:
    rows = table(TABLE)
    return {*rows["alike"], *rows} - {"alike"}


def _classes() -> list[tuple[str, str]]:
    """All classes of a type whose classes differ, the first and the last of others."""
    rows = table(TABLE)
    found: dict[str, list[str]] = {}
    for model_type, class_name in (*class_survey.classes(), *_ALSO):
        if model_type in _types() and not model_type.endswith("encoder-decoder"):
            found.setdefault(model_type, []).append(class_name)
    chosen = []
    for model_type, names in found.items():
        row = rows[rows["alike"].get(model_type, model_type)]
        differ = any("only" in buffer for buffer in row.get("buffer", ()))
        chosen += [(model_type, name) for name in dict.fromkeys(names if differ else (names[0], names[-1]))]
    return chosen


_CLASSES = _classes()
_VARIED = [pair for pair in dict(_CLASSES).items() if pair[0] in _OTHERS]


def _config(model_type: str, changes: dict[str, Any]) -> Any:
    try:
        said = meta_caches.as_json(meta_caches.tools().configs[model_type]())
    except (ValueError, TypeError):
        said = meta_caches.small_default(model_type)
    changes = meta_cases.case_for(model_type).set | _NEEDED.get(model_type, {}) | changes
    return meta_caches.config_of(meta_cases.patched({**said, "model_type": model_type}, changes))


def _built(class_name: str, config: Any, dtype: Any) -> Any:
    wanted = getattr(transformers, class_name)
    for name, part in type(config).sub_configs.items():
        if part is wanted.config_class:
            config = getattr(config, name)
    try:
        with torch.device("meta"):
            return wanted._from_config(config, dtype=dtype)
    except ImportError as error:
        pytest.skip(f"needs another library: {error}")


def _compare(model: Any, bits: int) -> int:
    """The bytes of the model's own buffers that the table names, which must be those of the formulas; no others may matter."""
    model.config.architectures = [type(model).__name__]
    config = json.loads(model.config.to_json_string(use_diff=True))
    known = made_buffers(ConfigReader(config), type(model).__name__)
    formulas = [(one.formula, {name: value.value for name, value in one.inputs.items()}) for one in known]
    ours = sum(evaluate(formula, {**inputs, "dtype_bits": bits}) for formula, inputs in formulas)
    saved = set(model.state_dict())
    own = {name: tensor.nbytes for name, tensor in model.named_buffers() if name not in saved}
    theirs = sum(size for name, size in own.items() if is_one_of(name, known))
    assert ours == theirs
    assert not any(is_one_of(name, known) for name in saved)
    return sum(own.values()) - theirs


@pytest.mark.parametrize(("model_type", "class_name"), _CLASSES)
def test_every_class_makes_what_the_formulas_say(model_type: str, class_name: str) -> None:
    """In the published model's own size, in bfloat16; what has no row is less than a thousandth of the weights."""
    model = _built(class_name, _config(model_type, {}), torch.bfloat16)
    others = _compare(model, 16)
    assert others < sum(one.nbytes for one in model.parameters()) / 1000


@pytest.mark.parametrize(("model_type", "class_name"), _VARIED)
def test_formulas_hold_with_other_values(model_type: str, class_name: str) -> None:
    """In float32 and with everything that a formula reads changed."""
    _compare(_built(class_name, _config(model_type, _OTHERS[model_type]), torch.float32), 32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("model_type", "class_name"),
    [
        ("gpt_neo", "GPTNeoForCausalLM"),
        ("gptj", "GPTJForCausalLM"),
        ("speech_to_text", "Speech2TextModel"),
        ("openai-gpt", "OpenAIGPTLMHeadModel"),
    ],
)
def test_loading_makes_them_in_the_dtype_that_was_told(
    model_type: str, class_name: str, dtype: str, tmp_path: Path
) -> None:
    """``from_pretrained`` on a file without them: masks stay bool, GPT-J's tables float32, others follow the dtype that is asked for."""
    small = {**_OTHERS[model_type], "vocab_size": 64}
    made = getattr(transformers, class_name)(_config(model_type, small))
    made.save_pretrained(tmp_path)
    loaded = getattr(transformers, class_name).from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    assert all(one.device.type == "cpu" for one in loaded.buffers())
    _compare(loaded, 32 if dtype == "float32" else 16)


@pytest.mark.parametrize(
    "class_name", ["BarkModel", "GPT2Model", "MaskFormerModel", "SwinModel", "ClapModel", "BertModel"]
)
def test_saved_buffers_are_those_that_the_tables_call_loaded(class_name: str) -> None:
    """A buffer of a table's name is loaded exactly where the class's own state dict has it."""
    from hubaudit.facts.tensors import by_name, group_tensors
    from hubaudit.facts.unbuilt import mark_unbuilt
    from hubaudit.types import TensorInfo

    config = getattr(transformers, class_name).config_class()
    model = _built(class_name, config, torch.bfloat16)
    saved = set(model.state_dict())
    integers = {"torch.bool": "BOOL", "torch.int64": "I64"}
    tensors = by_name(
        [
            TensorInfo(name, integers[str(one.dtype)], tuple(one.shape), one.nbytes)
            for name, one in model.named_buffers()
            if str(one.dtype) in integers and one.dim()
        ]
    )
    said = mark_unbuilt(group_tensors(tensors), architecture=class_name, is_tied=False)
    loaded = sum(group.count for group in said if group.extra is None)
    assert loaded == sum(name in saved for name in tensors)
