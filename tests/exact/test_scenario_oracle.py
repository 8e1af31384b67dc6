"""Whole runs traced on fake tensors, against what torch's own CUDA build reported for them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from hubaudit.exact.device import blas_policy, device_of_capability
from hubaudit.exact.plan import Plan
from hubaudit.exact.replay import replay

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("default"),
]
_MIB = 2**20
_QWEN2 = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32768,
}
#: Qwen2-0.5B, one sequence of 2,048 tokens, fused AdamW, two steps: MiB of max allocated and max reserved of the study that came before this
#: project (its prototype's figures, which it had held against torch 2.13.0+cu130 on a stub driver, compute capability 8.0).
_MEASURED: list[tuple[dict[str, Any], float, int]] = [
    ({"dtype": "bf16"}, 9189.9, 10518),
    ({"dtype": "bf16", "checkpointing": True}, 6521.3, 7742),
    ({"dtype": "fp32", "autocast": "bf16"}, 13394.6, 14786),
    ({"dtype": "bf16", "lora_rank": 16, "lora_targets": "all-linear", "steps": 1}, 8420.4, 9340),
]


@pytest.mark.parametrize(("choice", "allocated", "reserved"), _MEASURED, ids=["plain", "checkpointing", "amp", "lora"])
def test_a_training_step_is_that_of_the_cuda_build(choice: dict[str, Any], allocated: float, reserved: int) -> None:
    """Peaks of allocated and reserved memory of whole steps, as the real host code had them."""
    if "lora_rank" in choice:
        pytest.importorskip("peft")
    from hubaudit.exact.scenario import run

    device = device_of_capability("8.0")
    tracer = run(_QWEN2, Plan(mode="train", batch_size=1, tokens=2048, **choice), device)
    made = replay(tracer.trace(), blas_policy("2.13", device))
    assert (round(made.peak_allocated_bytes / _MIB, 1), made.peak_reserved_bytes / _MIB) == (allocated, reserved)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_tables_that_no_file_holds_are_apart_from_weights(mode: Any) -> None:
    """GPT-Neo's masks, a bool for every pair of positions in each layer, are a component of their own, and the rest is the parameters."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    from hubaudit.exact.scenario import run
    from hubaudit.verify.beside import components_of

    config = GPTNeoConfig(
        num_layers=2, attention_types=[[["global", "local"], 1]], max_position_embeddings=96, hidden_size=32, num_heads=2, vocab_size=50
    )  # fmt: skip
    parameters = sum(one.numel() for one in GPTNeoForCausalLM(config).parameters())
    plan = Plan(mode=mode, batch_size=1, tokens=8, dtype="bf16")
    found = components_of(run(config.to_dict(), plan, device_of_capability("8.0")).trace())
    assert (found["weights"], found["buffers"]) == (2 * parameters, 2 * 96 * 96)


def test_attention_kernels_are_chosen_as_the_cuda_build_chooses() -> None:
    """torch._fused_sdp_choice of 2.13.0+cu130 on the stub driver: type × mask × grouped keys × head size, by capability."""
    from hubaudit.exact.attention import chosen_kernel

    asked = {
        ("8.0", True, False, False, 64): "flash",
        ("8.0", True, True, False, 64): "efficient",
        ("8.0", False, False, False, 64): "efficient",
        ("8.0", True, True, True, 64): "math",
        ("8.0", True, False, False, 288): "efficient",
        ("9.0", True, False, False, 64): "cudnn",
        ("9.0", True, True, True, 128): "cudnn",
        ("9.0", True, False, False, 256): "cudnn",
        ("10.0", True, False, False, 256): "flash",
        ("12.0", True, False, False, 128): "flash",
    }
    for (capability, half, masked, grouped, width), kernel in asked.items():
        found = chosen_kernel(
            device_of_capability(capability), is_half=half, is_masked=masked, is_grouped=grouped, head_dim=width
        )
        assert found == kernel, (capability, half, masked, grouped, width)
