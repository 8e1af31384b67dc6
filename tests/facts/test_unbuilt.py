"""Weights that a file stores and a runtime does not build: prediction layers, buffers, second copies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from packed_checkpoints import snapshot, tensor

from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.loading import resident_bytes
from hubaudit.facts.model import understand
from hubaudit.facts.skeleton import describe
from hubaudit.facts.unbuilt import prediction_layers

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "configs"
LAYERS = 2


def unbuilt(*names: str, config: dict[str, Any] | None = None) -> dict[str, str]:
    """Which of the tensors are named as not built, and why, in a repository that also holds two ordinary layers."""
    own = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(LAYERS)]
    said = {"model_type": "llama", "num_hidden_layers": LAYERS, "tie_word_embeddings": False} | (config or {})
    facts = understand(snapshot([tensor(name, "BF16", 8, 8) for name in (*own, *names)], said))
    assert facts.parameters is not None
    assert facts.parameters.total == (LAYERS + len(names)) * 8 * 8, "nothing is lost"
    assert facts.parameters.total - facts.parameters.loaded == sum(facts.parameters.extra.values())
    return {group.pattern: group.extra for group in facts.tensor_groups if group.extra is not None}


@pytest.mark.parametrize(
    "name",
    [
        # Names of the checkpoints; the classes of transformers 5.23.0 list each under `_keys_to_ignore_on_load_unexpected`.
        "mtp.layers.0.self_attn.q_proj.weight",  # Qwen3-Next, Qwen3.5, Exaone-MoE
        "mtp.0.attn.wq_a.weight",  # DeepSeek-V4
        "model.mtp.layers.0.self_attn.qkv_proj.weight",  # MiMo-V2-Flash, LongCat-Flash
        "language_model.mtp.fc.weight",  # Qwen3.5, as MLX writes it
        "model.language_model.mtp.fc.weight",  # dots3
        "model.mtp_layers.0.input_proj.weight",  # MiMo-7B
        "model.mtp_block.0.self_attn.q_proj.weight",  # ERNIE 4.5
        "model.mtp_linear_proj.0.weight",
        "mtp_dspark.layers.0.mlp.up_proj.weight",  # Mistral Large 4
    ],
)
def test_prediction_layers_by_name(name: str) -> None:
    """Every model family's name for its multi-token-prediction part is known."""
    assert set(unbuilt(name).values()) == {"mtp"}


@pytest.mark.parametrize(
    "name", ["model.layers.0.mtp_gate_like.weight", "model.layers.1.smtp.weight", "model.mtpish.weight"]
)
def test_names_that_only_look_like_prediction_layers(name: str) -> None:
    """Inside an ordinary layer, or as a part of a word, the letters mean nothing."""
    assert unbuilt(name) == {}


@pytest.mark.parametrize("stem", ["model.", "language_model.model.", "model.language_model.", ""])
def test_prediction_layers_past_the_last_by_the_configs_word(stem: str) -> None:
    """As DeepSeek-V3, GLM-4.5 and GLM-5 store them: layer 61 of 61, or 78 of 78, announced by num_nextn_predict_layers."""
    found = unbuilt(f"{stem}layers.2.self_attn.q_proj.weight", config={"num_nextn_predict_layers": 1})
    assert found == {f"{stem}layers.*.self_attn.q_proj.weight": "mtp"}


def test_prediction_layers_past_the_last_by_what_they_hold() -> None:
    """A layer that joins the next token's embedding to the hidden state predicts, whatever the config leaves out."""
    found = unbuilt("model.layers.2.eh_proj.weight", "model.layers.2.mlp.up_proj.weight")
    assert found == {"model.layers.*.eh_proj.weight": "mtp", "model.layers.*.mlp.up_proj.weight": "mtp"}


def test_a_layer_too_many_without_such_signs_stays() -> None:
    """Where config and files merely disagree on the number of layers, that is a disagreement, and no layer is explained away."""
    assert unbuilt("model.layers.2.mlp.up_proj.weight") == {}


def test_towers_are_left_alone() -> None:
    """The vision tower's third layer is no prediction layer of a language model with two."""
    assert unbuilt("vision_tower.encoder.layers.2.q.weight", config={"num_nextn_predict_layers": 1}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",  # Llama 1 and 2, openPangu
        "transformer.rotary_pos_emb.inv_freq",  # ChatGLM3
        "gpt_neox.layers.0.attention.rotary_emb.inv_freq",  # RedPajama
        "gpt_neox.layers.0.attention.masked_bias",
        "bert.embeddings.position_ids",
        "roberta.embeddings.token_type_ids",
        "swin.encoder.layers.0.blocks.0.attention.self.relative_position_index",
    ],
)
def test_buffers_of_older_versions(name: str) -> None:
    """Buffers that are computed anew are named, wherever they stand (names of real indices and of transformers' own lists)."""
    facts = understand(
        snapshot([tensor(name, "F32", 8), tensor("model.norm.weight", "F32", 8)], {"model_type": "llama"})
    )
    assert facts.parameters is not None
    assert facts.parameters.extra == {"buffer": 8}
    assert facts.parameters.total == 16


@pytest.mark.parametrize("name", ["bn1.running_mean", "layer1.0.bn1.running_var", "bn1.num_batches_tracked"])
def test_statistics_of_batch_norm_are_built(name: str) -> None:
    """A ResNet without its running statistics gives nonsense: they are loaded."""
    facts = understand(snapshot([tensor(name, "F32", 8), tensor("conv1.weight", "F32", 8, 3, 3, 3)], {}))
    assert facts.parameters is not None
    assert facts.parameters.loaded == facts.parameters.total


@pytest.mark.parametrize(
    ("names", "copies"),
    [
        (("model.embed_tokens.weight", "lm_head.weight"), {"lm_head.weight"}),
        (("transformer.word_embeddings.weight", "lm_head.weight"), {"lm_head.weight"}),  # Falcon
        (("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}),
        (("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"), {"lm_head.decoder.weight"}),
        (("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"), {"cls.predictions.decoder.weight"}),
        (("model.embed_tokens.weight", "model.layers.2.embed_tokens.weight"), set()),
    ],
)  # fmt: skip
def test_second_copies_of_tied_weights(names: tuple[str, ...], copies: set[str]) -> None:
    """Where the config ties them, all but the input embedding are copies; where it does not, each is its own."""
    tied = understand(
        snapshot([tensor(name, "BF16", 32, 8) for name in names], {"model_type": "llama", "tie_word_embeddings": True})
    )
    assert {group.pattern for group in tied.tensor_groups if group.extra == "tied head"} == copies
    loose = understand(
        snapshot([tensor(name, "BF16", 32, 8) for name in names], {"model_type": "llama", "tie_word_embeddings": False})
    )
    assert all(group.extra is None for group in loose.tensor_groups)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("FreedomIntelligence__openPangu-Embedded-7B/model.safetensors.index.json", 34),
        ("THUDM__chatglm3-6b/model.safetensors.index.json", 1),
        ("decapoda-research__llama-7b-hf/pytorch_model.bin.index.json", 32),
        ("togethercomputer__RedPajama-INCITE-7B-Base/pytorch_model.bin.index.json", 32 + 32 + 32),
        ("Qwen__Qwen-72B-Chat/model.safetensors.index.json", 0),
        ("google__medgemma-27b-it/model.safetensors.index.json", 0),
        ("bryce-hoehn__Qwen3.5-18B-REAP-A3B-Coding/model.safetensors.index.json", 0),
    ],
)
def test_buffers_in_real_indices(folder: str, expected: int) -> None:
    """In the names of real indices, buffers and nothing else are named (frequencies one a layer; GPT-NeoX a mask and its value as well)."""
    path = CORPUS / folder
    if not path.exists():
        pytest.skip("the corpus is not here")
    names = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
    # A causal mask is told from a bias by its four dimensions, which an index does not have.
    masks = re.compile(r"\.attention\.bias$")
    tensors = [tensor(name, "F16", *((1, 1, 8, 8) if masks.search(name) else (8,))) for name in names]
    facts = understand(snapshot(tensors, {}))
    assert sum(group.count for group in facts.tensor_groups if group.extra is not None) == expected


def test_no_prediction_layer_no_cost() -> None:
    """Without prediction layers every name gets the answer at once, however odd."""
    why = prediction_layers(["a", "", "layers..", "model.layers.999999999999.x"], layers=2, extra_layers=0)
    assert why(["model.layers.2.x", "", "layers."]) == [None, None, None]


def _implied(architecture: str, **said: object) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    config: dict[str, Any] = {
        "model_type": "bert", "architectures": [architecture], "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 16, "vocab_size": 10, "max_position_embeddings": 4, "type_vocab_size": 2, "tie_word_embeddings": True,
    } | said  # fmt: skip
    found = describe(ConfigReader(config))
    assert not isinstance(found, str)
    return config, {one.name: one.shape for one in found.tensors}


def test_what_the_class_lacks_is_dropped_only_where_all_that_it_builds_is_found() -> None:
    """A pooler beside every tensor of BertForMaskedLM is left over; with one of the class's own tensors named otherwise nothing is said."""
    config, tensors = _implied("BertForMaskedLM")
    pooler = {"bert.pooler.dense.weight": (8, 8), "bert.pooler.dense.bias": (8,)}
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): shape for name, shape in tensors.items()}
    for names in (tensors, old):
        held = [tensor(name, "BF16", *shape) for name, shape in (names | pooler).items()]
        facts = understand(snapshot(held, config))
        assert facts.parameters is not None
        assert facts.parameters.extra == {"unused": 72}
    first = next(iter(tensors))
    renamed = {name.replace("word", "other") if name == first else name: shape for name, shape in tensors.items()}
    facts = understand(snapshot([tensor(name, "BF16", *shape) for name, shape in (renamed | pooler).items()], config))
    assert facts.parameters is not None
    assert facts.parameters.extra == {}


@pytest.mark.parametrize("model_type", ["deepseek_v3", "glm4_moe"])
@pytest.mark.parametrize("with_buffers", [True, False])
def test_saved_buffers_are_built_too(model_type: str, with_buffers: bool) -> None:
    """Routers that save a correction of their scores: the class's tensors are the files', whether these hold the buffers or not."""
    config: dict[str, Any] = {
        "model_type": model_type, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4,
        "intermediate_size": 16, "moe_intermediate_size": 4, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "vocab_size": 10,
        "first_k_dense_replace": 1, "q_lora_rank": 4, "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4,
        "tie_word_embeddings": False, "attention_bias": False, "use_qk_norm": False,
    }  # fmt: skip
    found = describe(ConfigReader(config))
    assert not isinstance(found, str)
    assert {one.name for one in found.buffers} == {"model.layers.1.mlp.gate.e_score_correction_bias"}
    held = (*found.tensors, *(found.buffers if with_buffers else ()))
    facts = understand(snapshot([tensor(one.name, "BF16", *one.shape) for one in held], config))
    assert {one.name for one in facts.built} == {one.name for one in held}


@pytest.mark.parametrize(
    ("architecture", "name", "shape", "expected"),
    [
        ("BarkModel", "semantic.layers.0.attn.bias", (1, 1, 8, 8), {}),
        ("GPT2LMHeadModel", "h.0.attn.bias", (1, 1, 8, 8), {"buffer": 64}),
        ("MaskFormerModel", "encoder.layers.0.blocks.0.attention.self.relative_position_index", (8, 8), {}),
        ("SwinModel", "encoder.layers.0.blocks.0.attention.self.relative_position_index", (8, 8), {"buffer": 64}),
        ("ClapModel", "text_model.embeddings.position_ids", (1, 64), {}),
        ("BertModel", "embeddings.position_ids", (1, 64), {"buffer": 64}),
    ],
)
def test_buffers_that_a_class_saves_are_loaded(
    architecture: str, name: str, shape: tuple[int, ...], expected: dict[str, int]
) -> None:
    """As transformers 5.23.0 does on the meta device: the name is in the state dict of Bark, MaskFormer and CLAP, and not in that of GPT-2, Swin and BERT."""
    said = {"architectures": [architecture]}
    facts = understand(snapshot([tensor("a.weight", "BF16", 8, 8), tensor(name, "I8", *shape)], said))
    assert facts.parameters is not None
    assert facts.parameters.extra == expected
    assert resident_bytes(facts) == 128 + (0 if expected else 64)
