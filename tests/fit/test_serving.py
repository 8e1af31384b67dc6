"""vLLM on a device: its share of the memory, and the tokens and sequences that its cache then holds."""

from __future__ import annotations

import pytest
from fixture_models import facts_of

from hubaudit.estimate.modes import estimate
from hubaudit.fit.judge import judge
from hubaudit.types import Fit, Hardware, Workload

GIB = 2**30


def fit(name: str, hardware: Hardware, **asked: object) -> Fit:
    """The answer for one device."""
    facts = facts_of(name)
    workload = Workload(**({"runtime": "vllm"} | asked))  # type: ignore[arg-type]
    (found,) = judge(facts, workload, estimate(facts, workload), (hardware,))
    return found


def test_a_4090_with_llama_3_1() -> None:
    """41,408 tokens of cache were logged (LLMServingSim at 5daddb21a545, vLLM 0.19, which took 90 %); the model's 131,072 do not fit even once."""
    found = fit("llama-3.1-8b", Hardware(name="GeForce RTX 4090", usable_bytes=25_250_627_584 * 90 // 92))
    assert found.cache_tokens == pytest.approx(41_408, rel=0.05)
    assert (found.full_sequences, found.full_tokens) == (0, 131_072)


def test_a_part_of_the_device_is_left_alone() -> None:
    """Headroom and limits are within the 92 % that vLLM takes by default (vllm/config/cache.py at 002f10e0cfa1, gpu_memory_utilization)."""
    found = fit("qwen2-0.5b-instruct", Hardware(name="24GiB", usable_bytes=24 * GIB))
    total = estimate(facts_of("qwen2-0.5b-instruct"), Workload(runtime="vllm")).total_bytes
    assert found.headroom_bytes == 24 * GIB * 92 // 100 - total
    plain = fit("qwen2-0.5b-instruct", Hardware(name="24GiB", usable_bytes=24 * GIB), runtime="transformers")
    assert plain.headroom_bytes > 24 * GIB * 92 // 100 - total
    assert (plain.cache_tokens, plain.full_sequences, plain.full_tokens) == (None, None, None)


@pytest.mark.parametrize("runtime", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-next-80b-a3b-instruct", "bert-base-uncased", "t5-small"])
def test_every_engine_is_judged(runtime: str, name: str) -> None:
    """No engine makes the search stumble; other precisions are transformers' own."""
    found = fit(name, Hardware(name="80GiB", usable_bytes=80 * GIB), runtime=runtime)
    assert found.verdict in ("fits", "tight", "no", "unknown")
    assert found.best_precision is None


def test_devices_that_share_every_matrix_share_the_cache() -> None:
    """Two RTX 4090 hold more than twice the tokens of one, for the weights are there once; stages have pools of their own and no one number."""
    two = fit("llama-3.1-8b", Hardware(name="GeForce RTX 4090", usable_bytes=25_250_627_584, count=2), tp=2)
    assert two.split == "tp 2"
    assert two.cache_tokens is not None
    assert two.cache_tokens > 2 * 41_408
    assert fit("llama-3.1-8b", Hardware(name="24GiB", usable_bytes=24 * GIB, count=2), pp=2).cache_tokens is None
