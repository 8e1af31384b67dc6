"""Generating many tokens on fake tensors: leaving out those in the middle changes nothing that is told of the last ones."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from hubaudit.exact import generation
from hubaudit.exact.device import blas_policy, device_of_capability
from hubaudit.exact.plan import Plan
from hubaudit.exact.replay import replay
from hubaudit.exact.scenario import run

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("default")]
_GEMMA2 = {
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 2000,
    "sliding_window": 40,
}
_LONG_ROWS = 20_000


@pytest.mark.parametrize("choice", [{}, {"cache": "static"}, {"num_beams": 2}], ids=["dynamic", "static", "beams"])
def test_leaving_out_middle_steps_keeps_what_is_held_at_the_end(
    choice: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against every step traced. A few ids of tokens apart (8 bytes each), which the loop holds beside the cache."""
    device, policy = device_of_capability("8.0"), blas_policy("2.13", device_of_capability("8.0"))
    plan = Plan(mode="infer", batch_size=2, tokens=36, new_tokens=17, **choice)
    shortened = replay(run(_GEMMA2, plan, device).trace(), policy)
    monkeypatch.setattr(generation, "_ALL_STEPS", plan.new_tokens)
    whole = replay(run(_GEMMA2, plan, device).trace(), policy)
    assert (shortened.phases[-1].label, whole.phases[-1].label) == ("last tokens", "decode")
    assert shortened.phases[-1].allocated_bytes == pytest.approx(whole.phases[-1].allocated_bytes, abs=2048)
    assert shortened.peak_allocated_bytes == pytest.approx(whole.peak_allocated_bytes, abs=4096)


@pytest.mark.parametrize(
    ("rows", "width", "taken"),
    [
        (2, 24_000, (8, 16, 16, 24_576, 2_048, 192, 192, 1_279)),
        (2, _LONG_ROWS - 1, ()),
        (8, 1_215_488, (32, 64, 64, 331_776, 8_192, 2_592, 2_592, 1_279)),
        (30, 32_000, (120, 240, 240, 322_560, 30_720, 2_520, 2_520, 1_279)),
        (5_000, 4_096, (20_000, 40_000, 40_000, 2_560_000, 5_120_000, 20_000, 20_000, 1_279)),
    ],
)
def test_topk_takes_what_the_cuda_build_takes(rows: int, width: int, taken: tuple[int, ...]) -> None:
    """The allocator's own history of ``torch.topk`` on float32 rows: torch 2.13.0+cu130 on the stub driver, compute capability 8.0."""
    import torch

    from hubaudit.exact.largest import scratch

    rule = scratch()[torch.ops.aten.topk.default]
    values = torch.empty(rows, width, device="meta")
    assert rule({"self": values, "dim": -1}, device_of_capability("8.0")) == taken
