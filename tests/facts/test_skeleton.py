"""Parameter counts from config.json alone, against published totals and against configurations whose totals outside sources confirm."""

from __future__ import annotations

import csv
import json
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.data import table
from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.skeleton import (
    Skeleton,
    describe,
    described_classes,
    described_model_types,
    skeleton,
    usual_class,
)
from hubaudit.facts.skeleton_layout import lines_of

if TYPE_CHECKING:
    from hubaudit.types import Json

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"

#: Outside-confirmed rows of the corpus that no row of the tables describes. This number may only go down.
MOST_CONFIRMED_NOT_COVERED = 0
#: The same for rows that only transformers' own count confirms.
MOST_BUILT_NOT_COVERED = 2

QWEN2_05B: dict[str, Json] = {
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
MIXTRAL_8X7B: dict[str, Json] = {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "vocab_size": 32000,
}
LLAMA_31_8B: dict[str, Json] = {
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

#: Total, where it was published, and the facts of the repository's config.json that decide it. "Hub" is the number of parameters that
#: the model's page on huggingface.co shows (its safetensors total), at the repository named.
PUBLISHED: list[tuple[str, int, str, dict[str, Json]]] = [
    ("Qwen2-0.5B", 494_032_768, "Hub: Qwen/Qwen2-0.5B", QWEN2_05B),
    ("Llama-3.1-8B", 8_030_261_248, "Hub: meta-llama/Llama-3.1-8B", LLAMA_31_8B),
    (
        "Mistral-7B",
        7_241_732_096,
        "Hub: mistralai/Mistral-7B-v0.1",
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
    ),
    ("Mixtral-8x7B", 46_702_792_704, "Hub: mistralai/Mixtral-8x7B-v0.1", MIXTRAL_8X7B),
    (
        "gpt2",
        124_439_808,
        "github.com/openai/gpt-2 README: 124M; Hub: openai-community/gpt2 less its stored causal masks",
        {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
    ),
    (
        "bert-base",
        109_482_240,
        "arXiv:1810.04805: 110M; google-bert/bert-base-uncased without heads",
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
    ),
    (
        "gpt2-xl",
        1_557_611_200,
        "github.com/openai/gpt-2 README: 1.5B; openai-community/gpt2-xl",
        {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": 1600,
            "n_head": 25,
            "n_layer": 48,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
    ),
    (
        "opt-125m",
        125_239_296,
        "arXiv:2205.01068: 125M; facebook/opt-125m",
        {
            "model_type": "opt",
            "architectures": ["OPTForCausalLM"],
            "hidden_size": 768,
            "ffn_dim": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "max_position_embeddings": 2048,
            "vocab_size": 50272,
            "word_embed_proj_dim": 768,
        },
    ),
    (
        "opt-350m",
        331_196_416,
        "arXiv:2205.01068: 350M; facebook/opt-350m",
        {
            "model_type": "opt",
            "architectures": ["OPTForCausalLM"],
            "hidden_size": 1024,
            "ffn_dim": 4096,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "max_position_embeddings": 2048,
            "vocab_size": 50272,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
        },
    ),
    (
        "pythia-70m",
        70_426_624,
        "model card of EleutherAI/pythia-70m: 70,426,624 parameters",
        {
            "model_type": "gpt_neox",
            "architectures": ["GPTNeoXForCausalLM"],
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_attention_heads": 8,
            "num_hidden_layers": 6,
            "vocab_size": 50304,
            "tie_word_embeddings": False,
        },
    ),
    (
        "bloom-560m",
        559_214_592,
        "model card of bigscience/bloom-560m: 559,214,592 parameters",
        {
            "model_type": "bloom",
            "architectures": ["BloomForCausalLM"],
            "n_embed": 1024,
            "n_layer": 24,
            "num_attention_heads": 16,
            "vocab_size": 250880,
        },
    ),
    (
        "phi-2",
        2_779_683_840,
        "Hub: microsoft/phi-2",
        {
            "model_type": "phi",
            "architectures": ["PhiForCausalLM"],
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "vocab_size": 51200,
            "tie_word_embeddings": False,
        },
    ),
    (
        "gemma-2b",
        2_506_172_416,
        "Hub: google/gemma-2b",
        {
            "model_type": "gemma",
            "architectures": ["GemmaForCausalLM"],
            "hidden_size": 2048,
            "intermediate_size": 16384,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "num_hidden_layers": 18,
            "head_dim": 256,
            "vocab_size": 256000,
        },
    ),
    (
        "gemma-7b",
        8_537_680_896,
        "Hub: google/gemma-7b",
        {
            "model_type": "gemma",
            "architectures": ["GemmaForCausalLM"],
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_hidden_layers": 28,
            "head_dim": 256,
            "vocab_size": 256000,
        },
    ),
    (
        "qwen2.5-7b",
        7_615_616_512,
        "Hub: Qwen/Qwen2.5-7B",
        {
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "num_hidden_layers": 28,
            "vocab_size": 152064,
            "tie_word_embeddings": False,
        },
    ),
    (
        "qwen3-0.6b",
        596_049_920,
        "Qwen/Qwen3-0.6B: 751,632,384 on the Hub, less the tied head stored again, 151,936 x 1,024",
        {
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "num_hidden_layers": 28,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        },
    ),
    (
        "mamba-130m",
        129_135_360,
        "state-spaces/mamba-130m-hf",
        {
            "model_type": "mamba",
            "architectures": ["MambaForCausalLM"],
            "hidden_size": 768,
            "num_hidden_layers": 24,
            "state_size": 16,
            "vocab_size": 50280,
            "expand": 2,
            "conv_kernel": 4,
        },
    ),
    (
        "t5-small",
        60_506_624,
        "arXiv:1910.10683: 60M; google-t5/t5-small",
        {
            "model_type": "t5",
            "architectures": ["T5ForConditionalGeneration"],
            "d_model": 512,
            "d_ff": 2048,
            "d_kv": 64,
            "num_heads": 8,
            "num_layers": 6,
            "vocab_size": 32128,
        },
    ),
    (
        "flan-t5-small",
        76_961_152,
        "Hub: google/flan-t5-small (a head of its own)",
        {
            "model_type": "t5",
            "architectures": ["T5ForConditionalGeneration"],
            "d_model": 512,
            "d_ff": 1024,
            "d_kv": 64,
            "num_heads": 6,
            "num_layers": 8,
            "num_decoder_layers": 8,
            "vocab_size": 32128,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
    ),
    (
        "mt5-small",
        300_176_768,
        "arXiv:2010.11934: 300M; google/mt5-small (a head of its own)",
        {
            "model_type": "mt5",
            "architectures": ["MT5ForConditionalGeneration"],
            "d_model": 512,
            "d_ff": 1024,
            "d_kv": 64,
            "num_heads": 6,
            "num_layers": 8,
            "num_decoder_layers": 8,
            "vocab_size": 250112,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
    ),
    (
        "roberta-base",
        124_645_632,
        "FacebookAI/roberta-base without heads",
        {
            "model_type": "roberta",
            "architectures": ["RobertaModel"],
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
            "vocab_size": 50265,
        },
    ),
    (
        "distilbert",
        66_362_880,
        "distilbert/distilbert-base-uncased without heads: 66M in arXiv:1910.01108",
        {
            "model_type": "distilbert",
            "architectures": ["DistilBertModel"],
            "dim": 768,
            "hidden_dim": 3072,
            "n_heads": 12,
            "n_layers": 6,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
        },
    ),
    (
        "albert-base-v2",
        11_683_584,
        "albert/albert-base-v2 without heads: 12M in arXiv:1909.11942",
        {
            "model_type": "albert",
            "architectures": ["AlbertModel"],
            "hidden_size": 768,
            "embedding_size": 128,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "vocab_size": 30000,
        },
    ),
    (
        "deberta-v3-base",
        183_831_552,
        "microsoft/deberta-v3-base without heads: 86M of backbone and 98M of embeddings in its model card",
        {
            "model_type": "deberta-v2",
            "architectures": ["DebertaV2Model"],
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "vocab_size": 128100,
            "max_position_embeddings": 512,
            "position_biased_input": False,
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": "p2c|c2p",
            "max_relative_positions": -1,
        },
    ),
    (
        "whisper-tiny",
        37_760_640,
        "Hub: openai/whisper-tiny (its positions and tied head once)",
        {
            "model_type": "whisper",
            "architectures": ["WhisperForConditionalGeneration"],
            "d_model": 384,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "encoder_ffn_dim": 1536,
            "decoder_ffn_dim": 1536,
            "encoder_attention_heads": 6,
            "decoder_attention_heads": 6,
            "num_mel_bins": 80,
            "vocab_size": 51865,
            "max_source_positions": 1500,
            "max_target_positions": 448,
        },
    ),
    (
        "vit-base",
        86_567_656,
        "Hub: google/vit-base-patch16-224: 86.6M",
        {
            "model_type": "vit",
            "architectures": ["ViTForImageClassification"],
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "image_size": 224,
            "patch_size": 16,
            "id2label": {str(label): f"LABEL_{label}" for label in range(1000)},
        },
    ),
    (
        "clip-b32",
        151_277_313,
        "Hub: openai/clip-vit-base-patch32: 151M",
        {
            "model_type": "clip",
            "architectures": ["CLIPModel"],
            "projection_dim": 512,
            "text_config": {
                "hidden_size": 512,
                "intermediate_size": 2048,
                "num_attention_heads": 8,
                "num_hidden_layers": 12,
                "vocab_size": 49408,
            },
            "vision_config": {
                "hidden_size": 768,
                "intermediate_size": 3072,
                "patch_size": 32,
                "image_size": 224,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
            },
        },
    ),
    (
        "modernbert-base",
        149_014_272,
        "answerdotai/ModernBERT-base without heads: 149M in arXiv:2412.13663",
        {
            "model_type": "modernbert",
            "architectures": ["ModernBertModel"],
            "hidden_size": 768,
            "intermediate_size": 1152,
            "num_attention_heads": 12,
            "num_hidden_layers": 22,
            "vocab_size": 50368,
        },
    ),
    (
        "mpnet-base",
        109_486_464,
        "Hub: sentence-transformers/all-mpnet-base-v2, less its 514 stored position ids",
        {
            "model_type": "mpnet",
            "architectures": ["MPNetModel"],
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "vocab_size": 30527,
            "max_position_embeddings": 514,
        },
    ),
    (
        "deepseek-v2-lite",
        15_706_484_224,
        "Hub: deepseek-ai/DeepSeek-V2-Lite",
        {
            "model_type": "deepseek_v2",
            "architectures": ["DeepseekV2ForCausalLM"],
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_hidden_layers": 27,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "q_lora_rank": None,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "vocab_size": 102400,
            "attention_bias": False,
        },
    ),
    (
        "gpt-oss-20b",
        20_914_757_184,
        "huggingface.js's tests: 20,914,757,184 for openai/gpt-oss-20b",
        {
            "model_type": "gpt_oss",
            "architectures": ["GptOssForCausalLM"],
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_hidden_layers": 24,
            "num_local_experts": 32,
            "vocab_size": 201088,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    ),
]


def _total(config: dict[str, Json]) -> int | str:
    tensors, reason = skeleton(ConfigReader(config))
    return str(reason) if tensors is None else sum(prod(tensor.shape) for tensor in tensors)


@pytest.mark.parametrize(("total", "source", "config"), [pytest.param(*row[1:], id=row[0]) for row in PUBLISHED])
def test_published_total(total: int, source: str, config: dict[str, Json]) -> None:
    """The parameters of a well-known configuration add up to its published total."""
    assert _total(config) == total, source


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


def test_kinds_tell_linear_modules_from_the_rest() -> None:
    """What quantizers and adapters look for: the projections are linear, the embedding and the fused experts are not."""
    found = describe(ConfigReader(dict(MIXTRAL_8X7B)))
    assert isinstance(found, Skeleton)
    linear = {
        name.rpartition(".layers.0.")[2] for name, kind in found.kinds.items() if kind == "linear" and ".0." in name
    }
    assert linear == {f"self_attn.{projection}_proj.weight" for projection in "qkvo"}
    assert found.kinds["lm_head.weight"] == "linear"
    assert found.kinds["model.embed_tokens.weight"] == "embedding"
    assert found.kinds["model.layers.0.mlp.experts.gate_up_proj"] == "experts"
    assert set(found.kinds) == {tensor.name for tensor in found.tensors}


def test_stored_buffers_are_apart() -> None:
    """The correction bias of DeepSeek-V3's router is stored and no parameter."""
    config: dict[str, Json] = {"model_type": "deepseek_v3", "num_hidden_layers": 4, "first_k_dense_replace": 3}
    found = describe(ConfigReader(config))
    assert isinstance(found, Skeleton)
    assert [buffer.name for buffer in found.buffers] == ["model.layers.3.mlp.gate.e_score_correction_bias"]
    assert not any("correction" in tensor.name for tensor in found.tensors)


def _layouts() -> list[Any]:
    files = [table("skeletons.toml"), *(table(name) for name in table("skeletons.toml")["parts"])]
    blocks = [(f"block.{name}", block["lines"]) for file in files for name, block in file.get("block", {}).items()]
    heads = [
        (f"heads.{name}.{task}", lines)
        for file in files
        for name, tasks in file.get("heads", {}).items()
        for task, lines in tasks.items()
    ]
    rows = [row for file in files for row in file.get("model", ())]
    tasks = [(f"{min(row['types'])}.{task}", lines) for row in rows for task, lines in row.get("tasks", {}).items()]
    return [pytest.param(lines, id=name) for name, lines in blocks + heads + tasks]


@pytest.mark.parametrize("lines", _layouts())
def test_every_layout_can_be_read(lines: str) -> None:
    """Every block and every class of the tables consists of lines of the layout language."""
    assert lines_of(lines)


@pytest.mark.parametrize("model_type", described_model_types())
def test_every_described_type_answers(model_type: str) -> None:
    """A bare configuration of each type gives parameters or says which value is missing, and its usual class is a described one."""
    assert usual_class(model_type) in described_classes(model_type)
    found = describe(ConfigReader({"model_type": model_type, "num_hidden_layers": 2}))
    assert found.tensors if isinstance(found, Skeleton) else found


def test_every_row_names_its_source() -> None:
    """Every row says where its layout was read, and no model type is described twice."""
    files = [table("skeletons.toml"), *(table(name) for name in table("skeletons.toml")["parts"])]
    rows = [row for file in files for row in file.get("model", ())]
    assert all(row["source"].startswith("transformers 5.23.0 models/") for row in rows)
    types = [model_type for row in rows for model_type in row["types"]]
    assert len(types) == len(set(types))
    names = [name for file in files for name in file.get("block", {})]
    assert len(names) == len(set(names))


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
    assert len(rows) - len(missing) > 50
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
