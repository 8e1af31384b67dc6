"""Traces the LoRA and QLoRA runs that others measured on an RTX 4080 (fixtures/exact/rtx4080.toml), and says by how much each peak is off.

python -m tools.exact_published     all eleven, and the mean (needs torch, transformers, peft and bitsandbytes)
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

from hubaudit.exact.device import blas_policy, device_of_capability
from hubaudit.exact.plan import Plan
from hubaudit.exact.replay import replay
from hubaudit.exact.scenario import run as traced

_FIXTURE = Path(__file__).parent.parent / "fixtures" / "exact" / "rtx4080.toml"
PUBLISHED = tomllib.loads(_FIXTURE.read_text(encoding="utf-8"))
_GIB = 2**30


def error_percent(run: dict[str, Any]) -> float:
    """By how much the traced peak is off a published one."""
    device = device_of_capability("8.9", "RTX 4080")
    quantized = run.get("quantized", True)
    plan = Plan(
        mode="train",
        batch_size=run.get("batch_size", 1),
        tokens=run["tokens"],
        dtype="bf16",
        quant="nf4" if quantized else None,
        double_quant=quantized,
        upcasts_base=quantized,
        checkpointing=run.get("checkpointing", True),
        holds_outputs=True,
        optimizer="adamw_8bit",
        lora_rank=16,
        lora_targets="q_proj,k_proj,v_proj,o_proj",
    )
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **PUBLISHED["geometry"][run["model"]]}
    made = replay(traced(config, plan, device).trace(), blas_policy("2.6", device))
    measured_gib = float(run["max_allocated_gib"])
    return 100 * (made.peak_allocated_bytes / _GIB / measured_gib - 1)


def main() -> None:
    """Print every run."""
    warnings.simplefilter("ignore")
    errors = []
    for run in PUBLISHED["run"]:
        errors.append(error_percent(run))
        print(f"{errors[-1]:+.3f} %", run)
    print(f"mean {sum(map(abs, errors)) / len(errors):.3f} %, worst {max(map(abs, errors)):.3f} %")


if __name__ == "__main__":
    main()
