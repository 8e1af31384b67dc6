"""Scratch memory of kernels against what torch 2.13's CUDA build asked its allocator for, on the stub driver, capability 8.0; and bounds of routing."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hubaudit.exact.device import device_of_capability  # noqa: E402
from hubaudit.exact.kernels.attention import efficient_backward  # noqa: E402
from hubaudit.exact.kernels.embedding import sorting, summing  # noqa: E402
from hubaudit.exact.plan import WORST, Plan  # noqa: E402
from hubaudit.exact.scenario import run  # noqa: E402

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("default")]
_DEVICE = device_of_capability("8.0")


@pytest.mark.parametrize(
    ("shape", "scratch"),
    [
        ((1, 2, 256, 256, 64, 64), (2048, 131200)),
        ((1, 2, 256, 256, 128, 128), (2048, 262208)),
        ((1, 2, 256, 256, 160, 160), (2048, 1441984)),
        ((1, 2, 300, 300, 192, 128), (2400, 1573152)),
        ((1, 2, 300, 256, 256, 256), (2400, 1835392)),
        ((1, 2, 256, 300, 256, 256), (2048, 1835264)),
        ((1, 64, 256, 256, 256, 256), (65536, 41951232)),
        ((2, 128, 256, 256, 256, 256), (262144, 100696064)),
        ((1, 60, 1024, 1024, 256, 256), (245760, 86538240)),
        ((1, 8, 2048, 4096, 80, 80), (65536, 8390656)),
    ],
)
def test_the_workspace_of_a_backward_pass_is_that_of_the_binary(
    shape: tuple[int, ...], scratch: tuple[int, int]
) -> None:
    """Of every width, with as many parts of keys as heads leave room for."""
    batch, heads, queries, keys, width, value_width = shape

    def made(tokens: int, size: int) -> Any:
        return torch.empty(batch, heads, tokens, size, dtype=torch.bfloat16, device="meta")

    call = {"query": made(queries, width), "key": made(keys, width), "value": made(keys, value_width)}
    assert efficient_backward(call, _DEVICE) == scratch


@pytest.mark.parametrize(
    ("tokens", "rows", "width", "sorter", "sums"),
    [
        (4096, 32, 8, 4607, (3528, 1024)),
        (4096, 32000, 4096, 72191, (73809920,)),
        (8192, 128256, 2048, 140799, (73818112,)),
        (3073, 100, 64, 3583, (3256, 25600)),
        (16384, 50257, 768, 271871, (55363584,)),
        (65536, 1000, 8, 1071615, (241696,)),
    ],
)
def test_an_embeddings_gradient_sorts_and_sums_as_the_binary_does(
    tokens: int, rows: int, width: int, sorter: int, sums: tuple[int, ...]
) -> None:
    """What the sort takes, and the largest of what the sums take."""
    call = {
        "grad_output": torch.empty(tokens, width, device="meta"),
        "indices": torch.empty(tokens, dtype=torch.long, device="meta"),
        "num_weights": rows,
    }
    held, passing = sorting(call, _DEVICE)
    assert held == (8 * tokens,) * 2
    assert passing == (8 * tokens, sorter)
    assert summing(call, _DEVICE)[-len(sums) :] == sums


def test_experts_gathered_one_by_one_have_two_bounds() -> None:
    """Of longcat_flash, whose memory depends on the routing: the worst case holds at least what the balanced one does, and both run."""
    config = {
        "model_type": "longcat_flash",
        "num_layers": 1,
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "ffn_hidden_size": 512,
        "expert_ffn_hidden_size": 256,
        "n_routed_experts": 8,
        "zero_expert_num": 2,
        "moe_topk": 2,
        "num_attention_heads": 4,
        "vocab_size": 512,
    }
    plan = Plan(mode="infer", batch_size=1, tokens=512)
    balanced = run(config, plan, _DEVICE)
    worst = run(config, Plan(mode="infer", batch_size=1, tokens=512, routing=WORST), _DEVICE)
    assert balanced.routing is not None
    assert balanced.routing.was_asked
    sizes = [max(event.bytes for event in one.events if type(event).__name__ == "Alloc") for one in (balanced, worst)]
    assert sizes[0] <= sizes[1]
    assert balanced.events != worst.events
