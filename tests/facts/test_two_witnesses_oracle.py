"""Models that transformers itself builds and saves: their config and their tensors do not contradict each other, whatever the class makes of the config."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.facts.repository import understand
from hubaudit.hub.fetching import fetch

if TYPE_CHECKING:
    from pathlib import Path

    from hubaudit.types import ModelFacts

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

_BERT = {
    "vocab_size": 120,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 72,
}
_GPT = {"vocab_size": 120, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}
_LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
_QWEN3_5_MOE = {
    "vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, **_LINEAR,
}  # fmt: skip
_T5GEMMA = {
    "vocab_size": 120, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
_ZAMBA2 = {
    "vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "mamba"],
    "intermediate_size": 48, "num_attention_heads": 4, "n_mamba_heads": 4, "mamba_headdim": 16, "mamba_d_state": 8, "mamba_ngroups": 1,
    "num_mem_blocks": 1, "adapter_rank": 4,
}  # fmt: skip
#: Class, its config, and where its MLP begins: a parameter whose rows are the MLP's width ("" where the class has none).
CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "an embedding narrower than the model": ("AlbertForMaskedLM", "AlbertConfig", {**_BERT, "embedding_size": 16}, "ffn.weight"),
    "the same in ELECTRA": ("ElectraForCausalLM", "ElectraConfig", {**_BERT, "embedding_size": 16}, "intermediate.dense.weight"),
    "the same in OPT": (
        "OPTForCausalLM", "OPTConfig",
        {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 72, "word_embed_proj_dim": 16},
        "fc1.weight",
    ),
    "a head named otherwise": (
        "RemBertForCausalLM", "RemBertConfig",
        {**_BERT, "input_embedding_size": 16, "output_embedding_size": 24, "is_decoder": True}, "intermediate.dense.weight",
    ),
    "layers of two kinds": ("Zamba2ForCausalLM", "Zamba2Config", _ZAMBA2, ""),
    "halves with embeddings of their own": (
        "T5GemmaForConditionalGeneration", "T5GemmaConfig", {"encoder": _T5GEMMA, "decoder": _T5GEMMA, "vocab_size": 120}, "",
    ),
    "an MLP called ffn": (
        "DistilBertForMaskedLM", "DistilBertConfig",
        {"vocab_size": 120, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 72}, "ffn.lin1.weight",
    ),
    "an MLP of four times the width": (
        "BloomForCausalLM", "BloomConfig", {"vocab_size": 120, "hidden_size": 32, "n_layer": 3, "n_head": 4}, "dense_h_to_4h.weight",
    ),
    "the same, outputs last": ("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", _GPT, "mlp.c_fc.bias"),
    "four times the width": (
        "MptForCausalLM", "MptConfig", {"vocab_size": 120, "d_model": 32, "n_layers": 3, "n_heads": 4}, "up_proj.weight",
    ),
    "dff": ("CTRLLMHeadModel", "CTRLConfig", {**_GPT, "dff": 72}, "ffn.0.weight"),
    "experts in every layer": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", _QWEN3_5_MOE, "shared_expert.up_proj.weight"),
}  # fmt: skip


def built(name: str) -> Any:
    """The model itself."""
    transformers = pytest.importorskip("transformers")
    torch = importlib.import_module("torch")
    class_name, config_name, values, _ = CASES[name]
    config = getattr(transformers, config_name)(**values)
    return getattr(transformers, class_name)(config).to(torch.bfloat16)


def read(folder: Path) -> ModelFacts:
    """What hubaudit makes of a folder."""
    return understand(fetch(str(folder), offline=True))


@pytest.mark.parametrize("name", CASES)
def test_a_model_as_saved_contradicts_nothing(name: str, tmp_path: Path) -> None:
    """No disagreement is reported, every parameter is counted once, and the MLP's width is the module's, with weights and without."""
    model = built(name)
    model.save_pretrained(tmp_path)
    facts = read(tmp_path)
    assert facts.disagreements == ()
    assert facts.parameters is not None
    assert facts.parameters.loaded == sum(parameter.numel() for parameter in model.parameters())
    end = CASES[name][3]
    if end:
        width = next(parameter.shape[0] for own, parameter in model.named_parameters() if own.endswith(end))
        assert facts.intermediate_size.value == width
        (tmp_path / "model.safetensors").unlink()
        assert read(tmp_path).intermediate_size.value == width


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers"])
def test_a_wrong_config_is_still_found(key: str, tmp_path: Path) -> None:
    """Where one number of the config is changed, the weights contradict it."""
    built("the same in ELECTRA").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    changed = {"hidden_size": 64, "embedding_size": 64} if key == "hidden_size" else {key: config[key] * 2}
    path.write_text(json.dumps(config | changed))
    assert read(tmp_path).disagreements
