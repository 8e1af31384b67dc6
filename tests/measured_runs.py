"""Results as the child process writes them, for tests without torch."""

from __future__ import annotations

from typing import Any

from hubaudit.types import Subject, Workload
from hubaudit.verify.launch import MeasurementError
from hubaudit.verify.measurement import CacheUse, Figure, MeasuredPhase, Measurement

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}
WORKLOAD = Workload(mode="infer", batch_size=2, prompt_tokens=16, new_tokens=4, dtype="bf16")
ENVIRONMENT = {
    "python": "3.12",
    "system": "Linux",
    "device": "cpu",
    "libraries": {"torch": "2.13.0"},
    "alloc_conf": None,
}


def phase(name: str, allocated: int, peak: int) -> dict[str, Any]:
    """A row of the child's."""
    return {
        "name": name,
        "allocated_bytes": allocated,
        "peak_allocated_bytes": peak,
        "reserved_bytes": 2 << 20,
        "peak_reserved_bytes": 2 << 20,
        "process_bytes": None,
    }


RESULT: dict[str, Any] = {
    "outcome": "ok",
    "measures": "bytes of something",
    "environment": ENVIRONMENT,
    "peak_resident_bytes": 1 << 28,
    "phases": [phase("load", 200_000, 200_000), phase("prefill", 210_000, 250_000), phase("rest 1", 200_000, 900_000)],
    "components": {"weights": 200_000, "kv_cache": 9_728, "logits": 100},
    "cache": {"held_bytes": 20_000, "used_bytes": 5_000, "tokens": 19},
    "rests": [200_000, 200_000],
}


def measurement(**changes: Any) -> Measurement:
    """A run with every part, whose figures are round."""
    made: dict[str, Any] = {
        "subject": Subject(repo_id="org/name", revision=None, commit=None, source="hub"),
        "config": CONFIG,
        "workload": WORKLOAD,
        "device": "cpu",
        "weights": "random",
        "measures": "bytes of something",
        "environment": ENVIRONMENT,
        "phases": (MeasuredPhase(**phase("load", 1000, 1000), exact_peak_allocated_bytes=990),),
        "figures": (
            Figure(id="weights", measured_bytes=1000, formula_bytes=1000, exact_bytes=1000),
            Figure(id="max_allocated", measured_bytes=1000, formula_bytes=1020, exact_bytes=995),
            Figure(id="max_reserved", measured_bytes=2000, formula_bytes=None, exact_bytes=None),
        ),
        "cache": CacheUse(held_bytes=400, used_bytes=100, tokens=7),
        "rests": (100, 200, 210, 225),
        "peak_resident_bytes": None,
        "formula_lacks": ("activations",),
        "exact_reason": "why not",
    }
    return Measurement(**{**made, **changes})


def out_of_memory() -> MeasurementError:
    """A run that ended early, with what it told before."""
    told = {"measures": "m", "environment": ENVIRONMENT, "phases": [phase("load", 1, 1)], "peak_resident_bytes": 7}
    return MeasurementError("out_of_memory", "out of memory on cuda after `load`", result=told)
