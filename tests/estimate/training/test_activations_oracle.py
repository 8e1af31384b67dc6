"""What a layer keeps for the backward pass, against the storages that autograd really keeps in the model code of transformers and PEFT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.stack import Stack, stack_of
from hubaudit.facts.model import understand
from hubaudit.types import RepoSnapshot, Workload

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore"),
]  # torch, transformers and PEFT deprecate each other

_BATCH, _TOKENS = 2, 24
_SMALL = {
    "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 96, "max_position_embeddings": 64,
}  # fmt: skip
#: The CPU's dropout keeps its mask in the compute dtype, CUDA's in bytes, so it is off here, and the formula knows.
_NO_DROPOUT = {
    "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
_ENCODER = {
    "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "vocab_size": 96, "max_position_embeddings": 64,
}  # fmt: skip
TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", _SMALL),
    "qwen2": ("Qwen2ForCausalLM", _SMALL),
    "qwen3": ("Qwen3ForCausalLM", _SMALL),
    "phi3": ("Phi3ForCausalLM", {**_SMALL, "pad_token_id": 0}),
    "gemma2": ("Gemma2ForCausalLM", _SMALL),
    "gemma3_text": ("Gemma3ForCausalLM", _SMALL),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_head": 4, "n_inner": 160, "vocab_size": 96, "n_positions": 64}),
    "bert": ("BertForMaskedLM", _ENCODER),
    "falcon": (
        "FalconForCausalLM",
        {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 96, "multi_query": True, "parallel_attn": True, "bias": False,
         "new_decoder_architecture": False, "alibi": False},
    ),
    "mixtral": ("MixtralForCausalLM", {**_SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
}  # fmt: skip
#: sdpa runs the CPU's own flash kernel, which keeps what CUDA's does; falcon masks, gemma2 refuses sdpa, fp32 has other kernels on CUDA.
CASES = [
    (name, attention, lora)
    for name in TYPES
    for attention in ("eager", "sdpa")
    for lora in (False, True)
    if (attention == "eager" or name not in ("falcon", "gemma2"))
    and not (lora and name in ("bert", "falcon", "mixtral"))
]


def _config(name: str, layers: int) -> dict[str, Any]:
    architecture, keys = TYPES[name]
    counted = "n_layer" if name == "gpt2" else "num_hidden_layers"
    off = _NO_DROPOUT if name in _DROPS else {}
    return {"model_type": name, "architectures": [architecture], counted: layers, **off, **keys}


_DROPS = ("gpt2", "bert")


def _cuda_only(name: str) -> int:
    """Bytes that the formula counts and the CPU does not have: statistics of layer norms (falcon has one) in 32, not 16 bit."""
    norms = 2 if name in _DROPS else 1 if name == "falcon" else 0
    return 4 * norms * _BATCH * _TOKENS


def _facts(name: str, layers: int) -> ModelFacts:
    return understand(
        RepoSnapshot(
            repo_id="made/up",
            revision=None,
            commit=None,
            source="local",
            configs={"config.json": _config(name, layers)},
        )
    )


def _kept_bytes(name: str, layers: int, attention: str, *, lora: bool) -> int:
    """Bytes of the distinct storages, parameters left out, that autograd holds after the forward pass of a real model in bf16."""
    import torch
    import transformers

    config = _config(name, layers)
    architecture = config.pop("architectures")[0]
    made = transformers.AutoConfig.for_model(**config)
    model = getattr(transformers, architecture)._from_config(made, dtype=torch.bfloat16, attn_implementation=attention)
    if lora:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    known = {one.untyped_storage()._cdata for one in (*model.parameters(), *model.buffers())}
    kept: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage
        return tensor

    ids = torch.zeros(_BATCH, _TOKENS, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=ids, labels=ids)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize(("name", "attention", "lora"), CASES)
def test_a_layer_keeps_what_autograd_keeps(name: str, attention: str, lora: bool) -> None:
    """One layer more makes autograd keep as many bytes more as the formula of a layer says; routing's indices and scalars apart."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if lora:
        pytest.importorskip("peft")
    truth = _kept_bytes(name, 4, attention, lora=lora) - _kept_bytes(name, 3, attention, lora=lora)
    facts = _facts(name, 4)
    workload = Workload(
        mode="train", batch_size=_BATCH, sequence_tokens=_TOKENS, recipe="bf16", attention=attention,
        lora=4 if lora else None, lora_targets="all-linear" if lora else None,
    )  # fmt: skip
    setting = settle_training(facts, workload)
    stack = stack_of(facts, setting)
    assert isinstance(stack, Stack), stack
    made = max(kind.memory.saved.value(stack.inputs) for kind in stack.kinds) - _cuda_only(name)
    assert made == pytest.approx(truth, rel=0.03 if name == "mixtral" else 0.0005)
