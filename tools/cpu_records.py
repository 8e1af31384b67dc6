"""Write fixtures/measured/cpu.jsonl: small models of real kinds, run on the CPU with data, storages counted: `python -m tools.cpu_records`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.auditing import audit_facts
from hubaudit.facts.repository import understand
from hubaudit.types import RepoSnapshot, Workload
from hubaudit.verify import beside, child
from hubaudit.verify.job import Job
from hubaudit.verify.record import to_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.verify.measurement import Measurement

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "fixtures" / "measured" / "cpu.jsonl"
#: Real kinds of layers with few and narrow ones. Without dropout: the CPU keeps its mask in the tensor's type, CUDA in bytes.
CONFIGS: dict[str, dict[str, Any]] = {
    "dense": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 2048,
    },
    "mixture": {
        "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "num_local_experts": 4, "num_experts_per_tok": 2,
        "max_position_embeddings": 2048, "sliding_window": None,
    },
    "encoder-decoder": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2,
        "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 1024, "decoder_start_token_id": 0, "dropout_rate": 0.0,
    },
    "mamba": {
        "model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 128, "intermediate_size": 256, "state_size": 16,
        "num_hidden_layers": 2, "vocab_size": 1024, "conv_kernel": 4, "time_step_rank": 8,
    },
    # Geometries that nothing was looked up in while the formulas were made: odd sizes, five queries a key, tied embeddings, experts beside a shared one.
    "grouped, tied": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 240, "intermediate_size": 616, "num_hidden_layers": 3,
        "num_attention_heads": 10, "num_key_value_heads": 2, "vocab_size": 3001, "max_position_embeddings": 1024, "tie_word_embeddings": True,
    },
    "shared expert": {
        "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 160, "intermediate_size": 416,
        "moe_intermediate_size": 96, "shared_expert_intermediate_size": 192, "num_experts": 6, "num_experts_per_tok": 2, "num_hidden_layers": 2,
        "num_attention_heads": 5, "num_key_value_heads": 5, "vocab_size": 1500, "max_position_embeddings": 512,
    },
    "odd encoder-decoder": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 192, "d_kv": 24, "d_ff": 480, "num_layers": 3,
        "num_decoder_layers": 2, "num_heads": 6, "vocab_size": 1400, "decoder_start_token_id": 0, "pad_token_id": 0, "dropout_rate": 0.0,
    },
    "fused, tied": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 180, "n_layer": 3, "n_head": 6, "n_positions": 512,
        "vocab_size": 1300, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    },
}  # fmt: skip
_INFER: dict[str, Any] = {"mode": "infer", "batch_size": 2, "prompt_tokens": 128, "new_tokens": 4, "dtype": "bf16"}
_TRAIN: dict[str, Any] = {"mode": "train", "batch_size": 2, "sequence_tokens": 128, "recipe": "bf16"}
_NF4: dict[str, Any] = {"quant": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "bfloat16"}
WORKLOADS: dict[str, dict[str, Any]] = {
    "generate": _INFER,
    "int8": {**_INFER, "quant": "int8"},
    "nf4": {**_INFER, **_NF4},
    "train": _TRAIN,
    "amp": {**_TRAIN, "recipe": "amp"},
    "checkpointing": {**_TRAIN, "gradient_checkpointing": "full"},
    "lora": {**_TRAIN, "lora": 8, "lora_targets": "all-linear"},
    "qlora": {**_TRAIN, **_NF4, "lora": 8, "lora_targets": "all-linear"},
}
#: What is recorded: model, workload.
RECORDED = (
    *(("dense", name) for name in WORKLOADS),
    *((model, name) for model in ("mixture", "encoder-decoder", "mamba") for name in ("generate", "train")),
    *(
        (model, name)
        for model in ("grouped, tied", "shared expert", "odd encoder-decoder", "fused, tied")
        for name in ("generate", "int8", "nf4", "train", "lora", "qlora")
    ),
)


def workload(name: str, attention: str = "eager") -> Workload:
    """A way to run. Eager attention is the same on every device."""
    return Workload(**WORKLOADS[name], attention=attention)


def measured(model: str, asked: Workload, *, with_exact: bool = True) -> Measurement:
    """One run, in this process: what the child process would tell.

    Raises:
        RuntimeError: the run did not end well, and how.
    """
    config = CONFIGS[model]
    snapshot = RepoSnapshot(
        repo_id=f"small {model}", revision=None, commit=None, source="local", configs={"config.json": config}
    )
    facts = understand(snapshot)
    report = audit_facts(snapshot, facts, asked, with_variants=False)
    job = Job(config=config, workload=report.workload, device="cpu")
    result = child._outcome(job)
    if result["outcome"] != "ok":
        raise RuntimeError(f"{model}: {result}")
    exact = beside._exact(snapshot, facts, report, beside.Request(device="cpu"), result) if with_exact else None
    return beside.compared(report, facts, job, result, exact)


def records() -> Iterator[dict[str, Any]]:
    """All of them; without what differs from one process to the next."""
    for model, name in RECORDED:
        record = to_record(measured(model, workload(name)))
        record["peak_resident_bytes"] = None
        for phase in record["phases"]:
            phase["process_bytes"] = None
        print(model, name, flush=True)
        yield record


if __name__ == "__main__":
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records()), encoding="utf-8")
