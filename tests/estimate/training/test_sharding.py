"""Shares of a step on several GPUs: the terms of ZeRO's paper, and laws between stages."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fixture_models import facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate.modes import estimate
from hubaudit.types import Workload

QWEN = "qwen2-0.5b-instruct"
LLAMA = "llama-2-7b-hf"
BASE = Workload(mode="train", sequence_tokens=256, recipe="mixed-16", gradient_checkpointing="full")


def parts(name: str = LLAMA, **asked: object) -> dict[str, int]:
    """Bytes of every component at the update."""
    made = estimate(facts_of(name), replace(BASE, optimizer="adamw_foreach", sequence_tokens=16, **asked))  # type: ignore[arg-type]
    assert made.peak_phase == "optimizer"
    return {part.id: part.bytes for part in made.components}


def test_terms_of_zero() -> None:
    """Of 2+2+12 bytes a parameter, ZeRO-1 divides the 12 by the GPUs, ZeRO-2 the gradients too, ZeRO-3 the weights too (arXiv:1910.02054, figure 1)."""
    count = 6_738_415_616
    alone = parts()
    assert (alone["weights"], alone["gradients"]) == (2 * count, 2 * count)
    assert alone["master_weights"] + alone["optimizer"] == 12 * count
    for stage in (1, 2, 3):
        here = parts(gpus=8, zero=stage)
        assert here["master_weights"] + here["optimizer"] == 12 * count // 8
        assert here["gradients"] == 2 * count // (8 if stage >= 2 else 1)
        assert here["weights"] == 2 * count // (8 if stage == 3 else 1)


@settings(max_examples=20)
@given(
    gpus=st.integers(1, 64),
    batch=st.integers(1, 8),
    recipe=st.sampled_from(["bf16", "amp", "mixed-16", "mixed-20"]),
    optimizer=st.sampled_from(["adamw", "adamw_8bit", "sgd"]),
)
def test_more_sharding_never_needs_more(gpus: int, batch: int, recipe: str, optimizer: str) -> None:
    """ZeRO-3 ≤ ZeRO-2 ≤ ZeRO-1 ≤ ZeRO-0 on every GPU."""
    asked = replace(BASE, gpus=gpus, batch_size=batch, recipe=recipe, optimizer=optimizer)
    totals = [estimate(facts_of(QWEN), replace(asked, zero=stage)).total_bytes for stage in range(4)]
    assert totals == sorted(totals, reverse=True)


@settings(max_examples=30)
@given(gpus=st.integers(2, 64), offload=st.sampled_from(["optimizer", "all", "optimizer-nvme"]))
def test_offloading_never_needs_more(gpus: int, offload: str) -> None:
    """What lies elsewhere is not on the GPU."""
    asked = replace(BASE, gpus=gpus, zero=3)
    assert (
        estimate(facts_of(QWEN), replace(asked, offload=offload)).total_bytes
        <= estimate(facts_of(QWEN), asked).total_bytes
    )


def test_formulas_of_shares() -> None:
    """Shares, buckets and gathered layers agree with their formulas, and every input has its source."""
    made = estimate(facts_of(QWEN), replace(BASE, gpus=3, zero=3))
    ids = {part.id for part in made.components}
    assert {"buckets", "gathered"} <= ids
    for item in made.components:
        functions = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
        assert eval(item.formula, {"__builtins__": {}}, {**functions, **item.inputs}) == item.bytes  # noqa: S307
        assert {source.partition(":")[0] for source in item.sources} == {*item.inputs, "formula"}
        assert set(re.findall(r"[a-z_A-Z]\w*", item.formula)) - set(functions) == set(item.inputs)


def test_all_stages_in_one_answer() -> None:
    """One command answers every stage for N GPUs: each row is what that stage alone answers, and its columns are its total."""
    made = estimate(facts_of(QWEN), replace(BASE, gpus=4))
    assert [one.name for one in made.stages] == ["ddp", "zero-1", "zero-2", "zero-3", "fsdp-1", "fsdp-2"]
    asked = ({"zero": 0}, {"zero": 1}, {"zero": 2}, {"zero": 3}, {"fsdp": 1}, {"fsdp": 2})
    for row, stage in zip(made.stages, asked, strict=True):
        alone = estimate(facts_of(QWEN), replace(BASE, gpus=4, **stage))  # type: ignore[arg-type]
        assert (row.total_bytes, row.high_bytes, row.gpus) == (alone.total_bytes, alone.high_bytes, 4)
        columns = (
            row.weights_bytes,
            row.gradients_bytes,
            row.optimizer_bytes,
            row.activations_bytes,
            row.buffers_bytes,
        )
        assert sum(columns) == row.total_bytes
    assert estimate(facts_of(QWEN), BASE).stages == ()


@pytest.mark.parametrize("version", [1, 2])
def test_formulas_of_fsdp(version: int) -> None:
    """Shards, gathered layers and gradients on their way agree with their formulas; a master copy is the shard itself."""
    made = estimate(facts_of(QWEN), replace(BASE, gpus=3, fsdp=version))
    ids = {part.id for part in made.components}
    assert {"buckets", "gathered", "weights"} <= ids
    assert "master_weights" not in ids
    for item in made.components:
        functions = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
        assert eval(item.formula, {"__builtins__": {}}, {**functions, **item.inputs}) == item.bytes  # noqa: S307
        assert {source.partition(":")[0] for source in item.sources} == {*item.inputs, "formula"}


def test_one_process_of_fsdp_shards_nothing() -> None:
    """With one GPU there is nothing to divide."""
    assert estimate(facts_of(QWEN), replace(BASE, fsdp=2)) == estimate(facts_of(QWEN), BASE)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"gpus": 4, "zero": 1, "offload": "all"}, "ZeRO-3"),
        ({"gpus": 4, "sequence_parallel": True}, "needs tensor parallel"),
        ({"gpus": 4, "tp": 4}, "attention heads are no multiple"),
        ({"gpus": 4, "cp": 2, "attention": "eager"}, "keeps no scores"),
        ({"gpus": 64, "pp": 64}, "fewer layers"),
        ({"gpus": 3, "cp": 2}, "no multiple"),
    ],
)
def test_what_is_not_estimated_is_refused(asked: dict[str, object], word: str) -> None:
    """Rather than ignored."""
    with pytest.raises(UsageError, match=word):
        estimate(facts_of(QWEN), replace(BASE, **asked))  # type: ignore[arg-type]


def test_what_has_no_source_is_refused() -> None:
    """Tensor parallel training of a state space, and of quantized weights."""
    with pytest.raises(UsageError, match="has no source"):
        estimate(facts_of("mamba-130m-hf"), replace(BASE, gpus=2, tp=2))
    with pytest.raises(UsageError, match="has no source"):
        estimate(
            facts_of("llama-3.1-8b-bnb-int8"), replace(BASE, gpus=2, tp=2, recipe=None, lora=8, lora_targets="q_proj")
        )
