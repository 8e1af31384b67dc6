"""Shares of several devices: laws that hold for every model, and figures of the engines' own rules."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from fixture_models import NAMES, facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate import infer
from hubaudit.estimate.expression import evaluate
from hubaudit.estimate.modes import estimate, variants
from hubaudit.estimate.runtimes.vllm import vllm_capacity
from hubaudit.estimate.setting import settle
from hubaudit.estimate.split.devices import fullest_facts
from hubaudit.estimate.split.layout import Split, SplitError, experts_of, split_of, stage_layers
from hubaudit.types import Workload

RUNTIMES = ("transformers", "vllm", "llama.cpp")
ANY_SPLIT = st.builds(
    dict, tp=st.sampled_from([1, 2, 3, 4, 8, 16]), pp=st.integers(1, 5), ep=st.sampled_from([1, 2, 8, 16])
)


def asked(runtime: str = "vllm", **split: Any) -> Workload:
    """A small workload on so many devices."""
    return Workload(runtime=runtime, batch_size=4, prompt_tokens=64, new_tokens=16, **split)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_one_device_is_no_split(name: str, runtime: str) -> None:
    """With tp 1, pp 1 and ep 1 there are the plain estimate and the plain variants."""
    facts, workload = facts_of(name), asked(runtime, tp=1, pp=1, ep=1)
    assert estimate(facts, workload) == infer.estimate(facts, workload)
    assert variants(facts, workload) == infer.variants(facts, workload)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6, deadline=None)
@given(runtime=st.sampled_from(RUNTIMES), split=ANY_SPLIT)
def test_devices_together_hold_all(name: str, runtime: str, split: dict[str, int]) -> None:
    """No parameter and no layer is lost, the fullest is the estimate, and every formula gives its bytes."""
    facts, workload = facts_of(name), asked(runtime, **split)
    try:
        made = estimate(facts, workload)
    except SplitError:
        return
    if not made.devices:
        return
    assert facts.parameters is not None
    assert len(made.devices) == split_of(workload).devices
    assert sum(one.parameters for one in made.devices) >= facts.parameters.loaded
    assert made.total_bytes == max(one.total_bytes for one in made.devices)
    assert made.high_bytes == max(one.high_bytes for one in made.devices)
    assert made.total_bytes == sum(part.bytes for part in made.components)
    assert all(evaluate(part.formula, part.inputs) == part.bytes for part in made.components)
    covered = {number for one in made.devices for number in range(one.first_layer, one.end_layer)}
    assert covered == set(range(facts.layers.value or len(facts.layer_plan or ())))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4, deadline=None)
@given(
    runtime=st.sampled_from(RUNTIMES),
    axis=st.sampled_from(["tp", "pp", "ep"]),
    count=st.integers(1, 8),
    times=st.integers(2, 3),
)
def test_more_devices_never_hold_more_each(name: str, runtime: str, axis: str, count: int, times: int) -> None:
    """A multiple of the devices along one axis: weights and cache of the fullest do not grow, padding of the vocabulary apart.

    Stages of equal length only: transformers leaves the rest to the last one, which can make it the longer the more there are.
    """
    facts = facts_of(name)
    if axis == "pp" and (facts.layers.value or 1) % (count * times):
        return
    try:
        few, many = (estimate(facts, asked(runtime, **{axis: number})) for number in (count, count * times))
    except SplitError:
        return
    padded = 2 * 64 * 4 * (facts.hidden_size.value or 0)  # two matrices of the vocabulary, 63 rows more at most
    for category, slack in (("Parameter", padded), ("KVCache", 0)):
        before, after = (
            sum(part.bytes for part in made.components if part.category == category) for made in (few, many)
        )
        assert after <= before + slack


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (2, 2, [(0, 1), (1, 2)]),
        (3, 2, [(0, 2), (2, 3)]),
        (4, 3, [(0, 1), (1, 3), (3, 4)]),
        (5, 3, [(0, 2), (2, 4), (4, 5)]),
    ],
)
def test_vllm_cuts_stages_as_its_own_tests_say(layers: int, stages: int, expected: list[tuple[int, int]]) -> None:
    """tests/distributed/test_pipeline_partition.py of vLLM, test_uneven_auto_partition."""
    split = Split(pipeline=stages)
    assert [stage_layers(layers, split, stage, "vllm") for stage in range(stages)] == expected


def test_transformers_leaves_the_rest_to_the_last_stage() -> None:
    """The example in layer_range_for_rank: 32 layers on three ranks are 10, 10 and 12."""
    split = Split(pipeline=3)
    assert [stage_layers(32, split, stage, "transformers") for stage in range(3)] == [(0, 10), (10, 20), (20, 32)]


def test_key_value_heads_are_repeated_where_there_are_fewer() -> None:
    """Llama-3.1-8B's eight on 16 devices: one each, 2 · 32 · 128 · 2 bytes a token, under vLLM; transformers refuses."""
    made = estimate(facts_of("llama-3.1-8b"), asked(tp=16))
    (cache,) = (part for part in made.components if part.id == "kv_cache")
    assert cache.inputs["token_bytes"] == 2 * 32 * 128 * 2
    with pytest.raises(SplitError, match="8 key/value heads over 16"):
        estimate(facts_of("llama-3.1-8b"), asked("transformers", tp=16))


def test_the_vocabulary_is_padded_to_64() -> None:
    """GPT-2's 50,257 rows are 50,304 in vLLM, of which two devices hold 25,152 each."""
    share = fullest_facts(facts_of("gpt2"), asked(tp=2))
    shapes = {group.pattern: group.shape for group in share.tensor_groups}
    assert shapes["wte.weight"] == (25_152, 768)
    assert shapes["wpe.weight"] == (1024, 768)
    assert shapes["h.*.attn.c_attn.weight"] == (768, 1152)
    assert shapes["h.*.attn.c_proj.weight"] == (384, 768)
    assert shapes["h.*.attn.c_proj.bias"] == (768,)
    assert shapes["ln_f.weight"] == (768,)


def test_experts_are_shared_unevenly_where_the_engine_can() -> None:
    """Eight on three devices: three, three and two under vLLM, refused by transformers."""
    split = Split(expert=3)
    assert [experts_of(8, split, rank, "vllm") for rank in range(3)] == [3, 3, 2]
    with pytest.raises(SplitError, match="not divisible"):
        experts_of(8, split, 0, "transformers")


def test_beyond_the_tensor_group_experts_bring_a_batch_of_their_own() -> None:
    """Under ep 8 without tp: attention is whole on every device, which serves an eighth of the sequences."""
    facts = facts_of("mixtral-8x7b-v0.1")
    made = estimate(facts, replace(asked(ep=8), batch_size=16))
    (cache,) = (part for part in made.components if part.id == "kv_cache")
    assert cache.inputs["batch_size"] == 2
    dense = sum(group.parameters or 0 for group in facts.tensor_groups if group.role != "expert")
    experts = sum(group.parameters or 0 for group in facts.tensor_groups if group.role == "expert")
    assert {one.parameters for one in made.devices} == {dense + experts // 8}


@pytest.mark.parametrize(
    ("name", "tp"), [("llama-3.1-8b", 2), ("llama-3.1-8b", 16), ("qwen3-30b-a3b", 4), ("gemma-3-4b-it", 2)]
)
def test_the_cache_agrees_with_that_of_vllms_pool(name: str, tp: int) -> None:
    """Two ways to a device's share of the cache: the pool that logs of TP 2 and 4 were checked on, and the facts of one device."""
    facts = facts_of(name)
    pool = vllm_capacity(facts, settle(facts, asked()), 2**34, sequence_tokens=4096, tensor_parallel=tp)
    share = fullest_facts(facts, asked(tp=tp))
    assert vllm_capacity(share, settle(share, asked()), 2**34, sequence_tokens=4096) == pool


@pytest.mark.parametrize(
    ("name", "runtime", "split", "words"),
    [
        ("qwen2-0.5b-instruct", "vllm", {"tp": 4}, "14 attention heads over 4"),
        ("gpt2", "transformers", {"tp": 2}, "no tp plan for gpt2"),
        ("llama-3.1-8b", "vllm", {"ep": 2}, "no experts"),
        ("llama-3.1-8b", "vllm", {"pp": 33}, "32 layers cannot be cut into 33"),
        ("mixtral-8x7b-v0.1", "vllm", {"tp": 4, "ep": 6}, "must be a multiple"),
        ("mixtral-8x7b-v0.1", "transformers", {"ep": 8}, "--tp"),
        ("t5-small", "vllm", {"pp": 2}, "only decoders"),
        ("llama-3.1-8b", "llama.cpp", {"tp": 2}, "--split-mode row"),
        ("mixtral-8x7b-v0.1", "llama.cpp", {"ep": 2}, "--split-mode row"),
        ("llama-3.1-8b", "llama.cpp", {"pp": 40}, "32 layers cannot be cut into 40"),
    ],
)
def test_what_the_engine_refuses_is_refused(name: str, runtime: str, split: dict[str, int], words: str) -> None:
    """With the reason in one line, and as a usage error."""
    with pytest.raises(UsageError) as refused:
        estimate(facts_of(name), asked(runtime, **split))
    assert words in refused.value.message


def test_training_has_no_expert_split() -> None:
    """--ep belongs to inference."""
    with pytest.raises(UsageError, match="--ep"):
        estimate(facts_of("mixtral-8x7b-v0.1"), Workload(mode="train", ep=2))


def test_training_has_no_variants() -> None:
    """Training has none, on one GPU or several."""
    facts = facts_of("qwen2-0.5b-instruct")
    for ranks in (1, 2):
        assert variants(facts, Workload(mode="train", tp=ranks, gpus=ranks)) == ()


@pytest.mark.parametrize(("axis", "expected"), [("tp", [(0, 24), (0, 24)]), ("pp", [(0, 12), (12, 24)])])
def test_every_row_has_the_layers_of_its_device(axis: str, expected: list[tuple[int, int]]) -> None:
    """All 24 of Qwen2-0.5B on each device that holds a part of every matrix, half of them on each of two stages, what each layer caches known or not."""
    facts = facts_of("qwen2-0.5b-instruct")
    for known in (facts, replace(facts, layer_plan=None, layer_plan_reason="not known")):
        rows = estimate(known, asked(**{axis: 2})).devices
        assert [(row.first_layer, row.end_layer) for row in rows] == expected


def test_layers_of_llama_cpp_as_its_log_has_them() -> None:
    """Two RTX 4090, 24 layers of Qwen2-0.5B, a context of 32,768: 13 and 11 layers, 208 and 176 MiB of cells; the head is on the second.

    The log is in nixiesearch's documentation of its GPU support (llama.cpp of 2024).
    """
    workload = Workload(runtime="llama.cpp", prompt_tokens=32768, new_tokens=0, pp=2)
    first, second = estimate(facts_of("qwen2-0.5b-instruct"), workload).devices
    assert (first.first_layer, first.end_layer, second.end_layer) == (0, 13, 24)
    assert (first.cache_bytes, second.cache_bytes) == (208 * 2**20, 176 * 2**20)
    assert second.weights_bytes > first.weights_bytes


@given(layers=st.integers(1, 200), devices=st.integers(1, 16))
def test_llama_cpp_gives_each_layer_to_the_share_it_falls_in(layers: int, devices: int) -> None:
    """Layer i of n goes to the first device whose bound, of equal shares, is beyond i / (n + 1), and every layer to one."""
    if layers < devices:
        return
    spans = [stage_layers(layers, Split(pipeline=devices), stage, "llama.cpp") for stage in range(devices)]
    for layer in range(layers):
        owner = next(at for at in range(devices) if Fraction(at + 1, devices) > Fraction(layer, layers + 1))
        assert [at for at, (start, end) in enumerate(spans) if start <= layer < end] == [owner]


@pytest.mark.parametrize("runtime", ["transformers", "vllm", "llama.cpp"])
@pytest.mark.parametrize("asked", [{"tp": 10**30}, {"pp": 10**30}, {"ep": 10**30}, {"tp": 1_000, "pp": 1_000}])
def test_more_devices_than_anybody_has(runtime: str, asked: dict[str, int]) -> None:
    """Refused before a list of them is made: each is estimated by itself."""
    with pytest.raises(SplitError, match="more than 1,024 devices"):
        estimate(facts_of("mixtral-8x7b-v0.1"), Workload(runtime=runtime, **asked))
