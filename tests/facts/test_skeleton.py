"""Parameter counts from config.json alone, against published totals and against configurations whose totals outside sources confirm."""

from __future__ import annotations

import csv
import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.skeleton import Skeleton, describe, described_classes, described_model_types, skeleton

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"

#: Outside-confirmed rows of the corpus that no row of the tables describes. This number may only go down.
MOST_CONFIRMED_NOT_COVERED = 100
#: The same for rows that only transformers' own count confirms.
MOST_BUILT_NOT_COVERED = 100

QWEN2_05B = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
LLAMA_31_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}

PUBLISHED = [
    # huggingface.co/Qwen/Qwen2-0.5B: "Model size 494M params"; safetensors total 494,032,768
    pytest.param(QWEN2_05B, 494_032_768, id="Qwen2-0.5B"),
    # huggingface.co/meta-llama/Llama-3.1-8B: safetensors total 8,030,261,248
    pytest.param(LLAMA_31_8B, 8_030_261_248, id="Llama-3.1-8B"),
    # huggingface.co/mistralai/Mistral-7B-v0.1: safetensors total 7,241,732,096
    pytest.param(
        {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
        },
        7_241_732_096,
        id="Mistral-7B",
    ),
    # huggingface.co/mistralai/Mixtral-8x7B-v0.1: safetensors total 46,702,792,704
    pytest.param(
        {
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "vocab_size": 32000,
        },
        46_702_792_704,
        id="Mixtral-8x7B",
    ),
    # "124M" (github.com/openai/gpt-2 README after its correction); 124,439,808 in huggingface/transformers' count of GPT2LMHeadModel
    pytest.param(
        {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        124_439_808,
        id="gpt2",
    ),
    # "110M" in arXiv:1810.04805; 109,482,240 is the published count of bert-base-uncased without heads
    pytest.param(
        {
            "model_type": "bert",
            "architectures": ["BertModel"],
            "hidden_size": 768,
            "intermediate_size": 3072,
            "max_position_embeddings": 512,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "type_vocab_size": 2,
            "vocab_size": 30522,
        },
        109_482_240,
        id="bert-base",
    ),
]


def _total(config: dict[str, Any]) -> int | str:
    tensors, reason = skeleton(ConfigReader(config))
    return str(reason) if tensors is None else sum(prod(tensor.shape) for tensor in tensors)


@pytest.mark.parametrize(("config", "total"), PUBLISHED)
def test_published_total(config: dict[str, Any], total: int) -> None:
    """The parameters of a well-known configuration add up to its published total."""
    assert _total(config) == total


def test_names_and_shapes_of_one_layer() -> None:
    """A layer of Qwen2-0.5B: biases on q, k, v only, two key-value heads of 64, as its safetensors header declares them."""
    tensors, _ = skeleton(ConfigReader(QWEN2_05B))
    assert tensors is not None
    layer = {t.name.removeprefix("model.layers.3."): t.shape for t in tensors if t.name.startswith("model.layers.3.")}
    assert layer == {
        "input_layernorm.weight": (896,),
        "mlp.down_proj.weight": (896, 4864),
        "mlp.gate_proj.weight": (4864, 896),
        "mlp.up_proj.weight": (4864, 896),
        "post_attention_layernorm.weight": (896,),
        "self_attn.k_proj.bias": (128,),
        "self_attn.k_proj.weight": (128, 896),
        "self_attn.o_proj.weight": (896, 896),
        "self_attn.q_proj.bias": (896,),
        "self_attn.q_proj.weight": (896, 896),
        "self_attn.v_proj.bias": (128,),
        "self_attn.v_proj.weight": (128, 896),
    }
    assert len(tensors) == 290  # the tensors of model.safetensors of Qwen/Qwen2-0.5B-Instruct
    assert sum(t.stored_bytes for t in tensors) == 988_065_536


def test_dtype_is_the_configurations_or_unknown() -> None:
    """Without a dtype in the configuration nothing is guessed: no dtype, no bytes."""
    config = {key: value for key, value in LLAMA_31_8B.items() if key != "torch_dtype"}
    tensors, _ = skeleton(ConfigReader(config))
    assert tensors is not None
    assert {(tensor.dtype, tensor.stored_bytes) for tensor in tensors} == {("", 0)}


def test_what_the_class_fills_in_is_named() -> None:
    """A value that the file leaves out is listed as assumed, with the class it came from; one that the file gives is not."""
    config = {key: value for key, value in LLAMA_31_8B.items() if key != "intermediate_size"}
    found = describe(ConfigReader(config))
    assert isinstance(found, Skeleton)
    assert found.assumed["intermediate_size"] == "default:llama"
    assert "hidden_size" not in found.assumed


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "names no model type"),
        ({"model_type": "no_such_type"}, "'no_such_type' is not described"),
        (LLAMA_31_8B | {"architectures": ["LlamaForCausalLMEagle3"]}, "'LlamaForCausalLMEagle3'"),
        (LLAMA_31_8B | {"hidden_size": "4096"}, "4096"),
        (LLAMA_31_8B | {"num_hidden_layers": 10**12}, "is not a size"),
        (LLAMA_31_8B | {"num_attention_heads": 0}, "head_dim"),
        (LLAMA_31_8B | {"vocab_size": True}, "True is not a size"),
        (LLAMA_31_8B | {"hidden_size": -4096}, "is not a size"),
    ],
)
def test_what_is_not_described_has_a_reason(config: dict[str, Any], reason: str) -> None:
    """An unknown model type, class or value gives no tensors and says why."""
    tensors, said = skeleton(ConfigReader(config))
    assert tensors is None
    assert said is not None
    assert reason in said


def test_spellings_of_old_class_names() -> None:
    """Checkpoints of the first hour write ``LLaMAForCausalLM``; it is the same class."""
    assert _total(LLAMA_31_8B | {"architectures": ["LLaMAForCausalLM"]}) == 8_030_261_248


def test_every_described_type_has_a_class() -> None:
    """Each described model type names at least one class, and each class's lines can be read."""
    for model_type in described_model_types():
        for name in described_classes(model_type):
            config = {"model_type": model_type, "architectures": [name]}
            assert describe(ConfigReader(config)), name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(data=st.data())
def test_nothing_in_a_file_makes_it_raise(data: st.DataObject) -> None:
    """Whatever values the keys of a configuration have, the answer is tensors or a reason."""
    model_type = data.draw(st.sampled_from(described_model_types()))
    known = ConfigReader({"model_type": model_type})
    found = describe(known)
    keys = sorted(found.assumed) if isinstance(found, Skeleton) else ["text_config", "vision_config", "hidden_size"]
    config = data.draw(st.dictionaries(st.sampled_from(keys), JSON | st.integers(0, 40), max_size=4))
    tensors, reason = skeleton(ConfigReader({**config, "model_type": model_type}))
    assert (tensors is None) != (reason is None)


# --- the corpus -------------------------------------------------------------------------------------------------------------------


def _rows() -> list[dict[str, str]]:
    with (CORPUS / "crosscheck.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _confirmed_total(row: dict[str, str]) -> int | None:
    """What an outside source says of the unique parameters of a row; ``None`` where none confirms it."""
    doubled = int(row["params_state"] or 0) - int(row["params_unique"] or 0)  # a tied head or buffers, stored again
    for column in ("llmfit_match", "unsloth_match"):
        if row[column].startswith("="):
            total = row["hub_params_llmfit"] if column == "llmfit_match" else row["unsloth_total"]
            return int(total) - (doubled if "state_dict" in row[column] else 0)
    if row["bytes_match"].startswith("exact: "):
        width = int(row["bytes_match"].removeprefix("exact: ")[0])
        return int(row["index_total_size"]) // width - (doubled if "state_dict" in row["bytes_match"] else 0)
    return None


def _corpus_outcome(rows: list[tuple[str, str, int]]) -> tuple[list[str], list[str]]:
    """Rows whose total differs, and rows that are not covered."""
    wrong, missing = [], []
    for model, sub, total in rows:
        config = json.loads((CORPUS / "configs" / model / sub / "config.json").read_text(encoding="utf-8"))
        found = _total(config)
        if isinstance(found, str):
            missing.append(f"{model} {sub}: {found}")
        elif found != total:
            wrong.append(f"{model} {sub}: {found} instead of {total} ({found - total:+})")
    print("\nnot covered:", *missing, sep="\n  ")  # noqa: T201 -- the list is what a reader of the test wants to see
    return wrong, missing


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real configurations is not here")
def test_totals_that_outside_sources_confirm() -> None:
    """Every configuration whose total an index, the Hub or a training log confirms gives exactly that total."""
    rows = [(row["model"], row["sub"], total) for row in _rows() if (total := _confirmed_total(row)) is not None]
    wrong, missing = _corpus_outcome(rows)
    assert not wrong, "\n".join(wrong)
    assert len(rows) - len(missing) > 20
    assert len(missing) <= MOST_CONFIRMED_NOT_COVERED


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real configurations is not here")
def test_totals_that_transformers_counts() -> None:
    """Every other configuration that transformers builds as the class its config names gives transformers' own count."""
    rows = [
        (row["model"], row["sub"], int(row["params_unique"]))
        for row in _rows()
        if row["build"] == "ok" and _confirmed_total(row) is None
    ]
    wrong, missing = _corpus_outcome(rows)
    assert not wrong, "\n".join(wrong)
    assert len(missing) <= MOST_BUILT_NOT_COVERED
