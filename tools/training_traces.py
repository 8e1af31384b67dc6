"""Training steps of the real model code on tensors without data, for every family of fixtures: the peak of all storages alive, beside today's estimate.

python -m tools.training_traces record [SECONDS [CASE …]]   trace what fixtures/training/traces.jsonl lacks (needs torch, transformers and peft)

tools/training_accuracy.py makes a table of it. The models are those of the fixtures with few layers and a small vocabulary, so that the activations are
not hidden behind weights and logits; towers for images are made small, as nothing goes through them.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.estimate.modes import estimate
from hubaudit.facts.model import understand
from hubaudit.hub.bundle import read_bundle
from hubaudit.types import Estimate, RepoSnapshot, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT = Path(__file__).resolve().parent.parent
RECORDED = _ROOT / "fixtures" / "training" / "traces.jsonl"
BATCH, TOKENS, VOCAB = 4, 512, 1024
#: Types whose plain PyTorch path takes the tokens one by one, and so takes long.
_SHORT = {"mamba-130m-hf": 32}
_LAYERS = {"gemma-3-4b-it": 6, "deepseek-v2-lite": 3}
#: Layers in the rhythm of the whole model.
_MANY = 4
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers")
_TOKEN_KEYS = ("pad_token_id", "eos_token_id", "bos_token_id")
_TOWER = {"hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "num_attention_heads": 2}
#: Shapes of our own for types that no fixture has.
MADE_UP: dict[str, dict[str, Any]] = {
    "gated T5 (flan-t5)": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 4,
        "num_decoder_layers": 4, "num_heads": 6, "vocab_size": VOCAB, "feed_forward_proj": "gated-gelu", "is_encoder_decoder": True,
        "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "dropout_rate": 0.1,
    },
    "BLOOM": {
        "model_type": "bloom", "architectures": ["BloomForCausalLM"], "hidden_size": 512, "n_layer": 4, "n_head": 8, "vocab_size": VOCAB,
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
    },
    "MPT": {
        "model_type": "mpt", "architectures": ["MptForCausalLM"], "d_model": 512, "n_layers": 4, "n_heads": 8, "vocab_size": VOCAB, "max_seq_len": 2048,
    },
    "Mamba 2": {
        "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "hidden_size": 352, "num_hidden_layers": 3, "num_heads": 11, "head_dim": 96,
        "state_size": 40, "n_groups": 1, "chunk_size": 112, "vocab_size": VOCAB, "expand": 3, "conv_kernel": 4,
    },
    "Bamba": {
        "model_type": "bamba", "architectures": ["BambaForCausalLM"], "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "attn_layer_indices": [2], "vocab_size": VOCAB, "mamba_n_heads": 16, "mamba_d_head": 64,
        "mamba_expand": 2, "mamba_d_state": 64, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_chunk_size": 128, "max_position_embeddings": 2048,
    },
    "Granite 4 hybrid": {
        "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 512, "intermediate_size": 512,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "layer_types": ["mamba", "mamba", "attention", "mamba"],
        "vocab_size": VOCAB, "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_expand": 2, "mamba_d_state": 64, "mamba_n_groups": 1, "mamba_d_conv": 4,
        "mamba_chunk_size": 128, "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 1408, "position_embedding_type": "nope",
    },
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "checkpointing": ({"gradient_checkpointing": "full"}, {"checkpointing": True}),
    "eager": ({"attention": "eager"}, {"attention": "eager"}),
    "AMP": ({"recipe": "amp"}, {"dtype": "fp32", "autocast": "bf16"}),
    "LoRA": ({"lora": 16, "lora_targets": "all-linear"}, {"lora_rank": 16, "lora_targets": "all-linear"}),
    "LoRA, dropout": (
        {"lora": 16, "lora_targets": "all-linear", "lora_dropout": True},
        {"lora_rank": 16, "lora_targets": "all-linear", "lora_dropout": True},
    ),
    "AMP, checkpointing": (
        {"recipe": "amp", "gradient_checkpointing": "full"},
        {"dtype": "fp32", "autocast": "bf16", "checkpointing": True},
    ),
    "checkpointing, 2 layers": ({"gradient_checkpointing": "full", "checkpoint_every": 2}, {"uses_cache": False}),
    "eager, selective": (
        {"attention": "eager", "gradient_checkpointing": "selective"},
        {"attention": "eager", "uses_cache": False},
    ),
    "chunked loss": ({"loss": "chunked"}, {}),
    "fused loss": ({"loss": "fused"}, {}),
    "large vocabulary": ({}, {}),
    "large vocabulary, AMP": ({"recipe": "amp"}, {"dtype": "fp32", "autocast": "bf16"}),
    "DoRA": (
        {"lora": 16, "lora_targets": "q_proj,v_proj,up_proj", "lora_variant": "dora"},
        {"lora_rank": 16, "lora_targets": "q_proj,v_proj,up_proj", "lora_variant": "dora"},
    ),
}
#: Cases in which the model is changed as an option's own source does it (tools/training_options.py), traced on a sample.
CHANGED = {
    "checkpointing, 2 layers": "in_segments",
    "eager, selective": "core_again",
    "chunked loss": "chunked_loss",
    "fused loss": "fused_loss",
}
SAMPLED = ("AMP, checkpointing", *CHANGED, "large vocabulary", "large vocabulary, AMP")
_SAMPLE = ("gpt2", "llama-3.1-8b", "mixtral-8x7b-v0.1")
#: Their classes have a loss of their own.
_OWN_LOSS = ("bert-base-uncased", "t5-small")
#: Where the loss is what is looked at, logits are what takes most.
_VOCAB_OF = dict.fromkeys(("chunked loss", "fused loss", "large vocabulary", "large vocabulary, AMP"), 32768)


def families() -> list[str]:
    """Fixtures that end in a loss over a vocabulary, one for each bundle; then those of our own."""
    found = sorted((_ROOT / "fixtures" / "bundles").glob("*.json.gz"))
    names = [path.name.removesuffix(".json.gz") for path in found]
    return [name for name in names if name != "all-minilm-l6-v2"] + list(
        MADE_UP
    )  # a sentence encoder has no loss of its own


def sampled(case: str) -> tuple[str, ...]:
    """The families that are traced in a case that is not for all."""
    return (*_SAMPLE, *_OWN_LOSS) if case.startswith("large vocabulary") else _SAMPLE


def tokens_of(family: str) -> int:
    """Tokens of a sequence."""
    return _SHORT.get(family, TOKENS)


def config_of(family: str, case: str) -> dict[str, Any]:
    """The small config, with the vocabulary that the case wants."""
    config = small(family)
    return config | {"vocab_size": _VOCAB_OF[case]} if case in _VOCAB_OF else config


def small(family: str) -> dict[str, Any]:
    """The fixture's config with few layers and a small vocabulary."""
    if family in MADE_UP:
        return dict(MADE_UP[family])
    snapshot = read_bundle(_ROOT / "fixtures" / "bundles" / f"{family}.json.gz")
    config: dict[str, Any] = json.loads(json.dumps(dict(snapshot.configs["config.json"])))
    for name in ("quantization_config", "compression_config"):
        config.pop(name, None)
    layers = _LAYERS.get(family, _MANY)
    for part in (config, config.get("text_config") or {}):
        _cut(part, layers)
    if "vision_config" in config:
        config["vision_config"] |= {"num_hidden_layers": 1, "depth": 1, "fullatt_block_indexes": [0], **_TOWER}
        if "text_config" in config:
            config["text_config"]["vocab_size"] = VOCAB
    return config


def _cut(part: dict[str, Any], layers: int) -> None:
    for name in _LAYER_KEYS:
        if name in part:
            part[name] = layers
    if part.get("layer_types"):
        part["layer_types"] = part["layer_types"][:layers]
    if "full_attn_idxs" in part:
        part["full_attn_idxs"] = [at for at in part["full_attn_idxs"] if at < layers]
    if "vocab_size" in part:
        part["vocab_size"] = VOCAB
    if part.get("max_window_layers"):
        part["max_window_layers"] = layers
    for name in _TOKEN_KEYS:
        if part.get(name) is not None:
            part[name] = 0


def estimated(family: str, case: str) -> Estimate:
    """Today's estimate of that step."""
    facts = understand(
        RepoSnapshot(
            repo_id=family, revision=None, commit=None, source="local", configs={"config.json": config_of(family, case)}
        )
    )
    asked = CASES[case][0]
    return estimate(
        facts,
        Workload(mode="train", batch_size=BATCH, sequence_tokens=tokens_of(family), **({"recipe": "bf16"} | asked)),
    )


def allocated_bytes(made: Estimate) -> int:
    """The estimate without what is no tensor of the program: the CUDA context, cuBLAS's workspaces and what the allocator adds to blocks."""
    outside = ("Context", "Fragmentation")
    return made.total_bytes - sum(
        part.bytes for part in made.components if part.category in outside or part.id == "workspace"
    )


def traced_bytes(family: str, case: str) -> int:
    """The most that is alive at once in two steps: storages, and what kernels of CUDA take beside their results (compute capability 8.0)."""
    from hubaudit.exact.device import device_of_capability
    from hubaudit.exact.plan import Plan
    from hubaudit.exact.scenario import run
    from tools.training_options import changed

    plan = Plan(mode="train", batch_size=BATCH, tokens=tokens_of(family), **CASES[case][1])
    with changed(CHANGED.get(case)):
        events = run(config_of(family, case), plan, device_of_capability("8.0")).trace().events
    return max(most_alive(events).values())


def most_alive(events: Iterable[Any]) -> dict[str, int]:
    """The most bytes alive at once up to each mark since the one before, by its label; with what kernels take beside their results."""
    from hubaudit.exact.events import Alloc, Free, Mark, Scratch

    sizes: dict[int, int] = {}
    most: dict[str, int] = {}
    alive = worst = 0
    for event in events:
        if isinstance(event, Alloc):
            sizes[event.id] = event.bytes
            alive += event.bytes
        elif isinstance(event, Free):
            alive -= sizes.pop(event.id, 0)
        worst = max(worst, alive + (sum(event.sizes) if isinstance(event, Scratch) else 0))
        if isinstance(event, Mark):
            most[event.label] = max(worst, most.get(event.label, 0))
            worst = alive
    return most | {"": worst}


def recorded() -> dict[tuple[str, str], dict[str, Any]]:
    """Rows by family and case."""
    rows = (json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()) if RECORDED.exists() else ()
    return {(row["family"], row["case"]): row for row in rows}


def record(seconds: float, cases: list[str] | None = None) -> None:
    """Trace what is not there yet, until the time is over; what cannot be traced is a row with the reason."""
    end, done = time.monotonic() + seconds, recorded()
    for case in CASES if cases is None else cases:
        for family in families():
            if case in SAMPLED and family not in sampled(case):
                continue
            if (family, case) in done or time.monotonic() > end:
                continue
            row: dict[str, Any] = {"family": family, "case": case}
            try:
                row["peak_bytes"] = traced_bytes(family, case)
            except Exception as error:  # noqa: BLE001 - any end is a row
                row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            with RECORDED.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    record(float(sys.argv[2]) if len(sys.argv) > 2 else float("inf"), sys.argv[3:] or None)
