"""Write docs/training-accuracy.md: every published training run that is kept in fixtures/published/, beside today's estimate of it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hubaudit.estimate.modes import estimate
from hubaudit.facts.model import understand
from hubaudit.types import RepoSnapshot, Workload

ROOT = Path(__file__).resolve().parent.parent
GIB = 2**30
_HEAD = """# Training estimates against runs that others measured

Written by `tools/training_accuracy.py`. No constant of the estimator was fitted to these runs.

LoRA and QLoRA of Qwen2.5-Instruct on one RTX 4080, torch 2.6.0: the peak of `max_memory_allocated`, against the estimate without the CUDA context.
Source of the measurements: {source}.

| run | measured GiB | estimate GiB | error | within |
|---|---|---|---|---|
"""
_TAIL = """
The band is 1 % with gradient checkpointing and 2 % without. Without checkpointing the run kept attention scores, because no fused kernel of torch 2.6 took
float32 with grouped heads; the estimate says which kernel it expects. It lacks about 0.12 GiB there, which is not explained yet.

PEFT's method comparison (fixtures/published/peft.toml) is held within 60 MiB for full fine-tuning, LoRA and DoRA by the tests. Published figures of litgpt,
torchtune, Unsloth and axolotl are not in this table yet: most are reserved memory, whose share above allocated memory is not estimated.
"""


def page() -> str:
    """The page as it should be."""
    rows = [_row(*one) for one in compared()]
    source = "github.com/DaoyuanLi2816/can-i-finetune-this (MIT), benchmarks/results"
    return _HEAD.format(source=source) + "".join(rows) + _TAIL


def compared() -> list[tuple[str, float, float, int]]:
    """For each published run its name, the GiB measured and estimated, and the percent within which they should lie."""
    published = tomllib.loads((ROOT / "fixtures" / "published" / "rtx4080.toml").read_text(encoding="utf-8"))
    return [_compared(run, published["config"][run["model"]]) for run in published["run"]]


def _compared(run: dict[str, Any], config: dict[str, Any]) -> tuple[str, float, float, int]:
    snapshot = RepoSnapshot(
        repo_id=run["model"], revision=None, commit=None, source="local", configs={"config.json": config}
    )
    is_quantized = run["method"] == "qlora"
    made = estimate(
        understand(snapshot),
        Workload(
            mode="train",
            batch_size=run["batch_size"],
            sequence_tokens=run["sequence_tokens"],
            lora=run["rank"],
            lora_targets="q_proj,k_proj,v_proj,o_proj",
            optimizer=run["optimizer"],
            gradient_checkpointing="full" if run["gradient_checkpointing"] else None,
            loss="held",
            quant="nf4" if is_quantized else None,
            bnb_4bit_use_double_quant=is_quantized,
            bnb_4bit_compute_dtype="bfloat16" if is_quantized else None,
        ),
    )
    context = sum(part.bytes for part in made.components if part.category == "Context")
    ours, theirs = (made.total_bytes - context) / GIB, run["max_allocated_gib"]
    limit = 1 if run["gradient_checkpointing"] else 2
    name = (
        f"{run['model'].removeprefix('Qwen/')} {run['method']}, {run['sequence_tokens']} tokens × {run['batch_size']}"
    )
    name += "" if run["gradient_checkpointing"] else ", no checkpointing"
    return name, theirs, ours, limit


def _row(name: str, theirs: float, ours: float, limit: int) -> str:
    error = 100 * (ours / theirs - 1)
    return f"| {name} | {theirs:.3f} | {ours:.3f} | {error:+.2f} % | {'yes' if abs(error) <= limit else 'no'} |\n"


if __name__ == "__main__":
    (ROOT / "docs" / "training-accuracy.md").write_text(page(), encoding="utf-8")
