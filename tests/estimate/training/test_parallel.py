"""Tensor, sequence, pipeline and context parallel training: the formulas of the papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fixture_models import facts_of

from hubaudit.estimate.modes import estimate
from hubaudit.estimate.training.parallel import in_flight, rank_facts
from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.stack import Stack, stack_of
from hubaudit.estimate.training.textbook import textbook_activations
from hubaudit.types import Workload

LLAMA = "llama-2-7b-hf"
BASE = Workload(mode="train", sequence_tokens=1024, batch_size=2, recipe="bf16", loss="fused", gpus=8, optimizer="sgd")


@pytest.mark.parametrize(("heads", "hidden", "ratio"), [(96, 12288, 80), (128, 20480, 64)], ids=["GPT-3", "MT-NLG"])
def test_the_textbook_formula(heads: int, hidden: int, ratio: int) -> None:
    """5as/h is 80 for GPT-3 and 64 for MT-NLG (arXiv:2205.05198, section 5); a layer without parallelism is sbh(34 + 5as/h)."""
    assert textbook_activations(sequence=2048, batch=1, hidden=hidden, heads=heads, layers=1) == 2048 * hidden * (
        34 + ratio
    )


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_textbook_formula_in_parallel(ranks: int) -> None:
    """Table 2 of arXiv:2205.05198: sbh(10 + 24/t + 5as/ht) with tensor parallel, sbh/t(34 + 5as/h) with sequence parallel too."""
    asked = {"sequence": 2048, "batch": 1, "hidden": 12288, "heads": 96, "layers": 96, "tensor_parallel": ranks}
    stream = 2048 * 12288
    assert textbook_activations(**asked) == 96 * stream * (10 + (24 + 80) // ranks)
    assert textbook_activations(**asked, sequence_parallel=True) == 96 * stream * (34 + 80) // ranks


def kept(**asked: Any) -> int:
    """Bytes that the layers of the first stage's first rank keep for the backward pass."""
    facts = facts_of(LLAMA)
    setting = settle_training(facts, replace(BASE, **asked))
    sharing = setting.sharing
    setting = replace(setting, in_flight=in_flight(sharing, 0, setting.grad_accum))
    stack = stack_of(rank_facts(facts, sharing, 0), setting)
    assert isinstance(stack, Stack)
    return stack.kept(setting).value(stack.inputs)


def weights(**asked: Any) -> int:
    """Bytes of the weights on one rank."""
    made = estimate(facts_of(LLAMA), replace(BASE, **asked))
    return next(part.bytes for part in made.components if part.id == "weights")


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_what_tensor_parallel_divides(ranks: int) -> None:
    """Matrices are divided, norms are not; what lies between matrices stays whole, until sequence parallel divides it too."""
    norms = 2 * 4096 * (2 * 32 + 1)
    assert weights(tp=ranks) == (weights() - norms) // ranks + norms
    # norms in float32 with their normed values, and what attention and MLP read: 16 bytes a value of the stream, 8 a token
    whole = 32 * 2048 * (16 * 4096 + 8)
    inner = 32 * 2048 * (4 * 4096 + 4 * 4096 + 4 * 32 + 8 * 11008)
    assert kept() == whole + inner
    assert kept(tp=ranks) == whole + inner // ranks
    assert kept(tp=ranks, sequence_parallel=True) == (whole + inner) // ranks


def test_a_pipeline_holds_as_many_micro_batches_as_stages() -> None:
    """Under 1F1B the first of p stages has p micro-batches of its L/p layers on their way: as much as all layers (arXiv:2205.05198, section 4.2.3)."""
    assert kept(pp=4, grad_accum=8) == kept()
    assert kept(pp=4, grad_accum=2) == kept() // 2
    assert kept(pp=4) == kept() // 4


def test_context_parallel_divides_the_sequence() -> None:
    """Each rank keeps what a sequence of its part's length would."""
    assert kept(cp=4, sequence_tokens=4096) == kept(sequence_tokens=1024)


def test_ranks_say_their_source() -> None:
    """Every kind of parallelism names its paper."""
    made = estimate(facts_of(LLAMA), replace(BASE, tp=2, pp=2, cp=2, grad_accum=4))
    said = " ".join(made.assumptions)
    assert all(paper in said for paper in ("2205.05198", "2104.04473", "2310.01889"))


def test_tensors_without_elements() -> None:
    """A header may hold matrices of no rows: any share of them is nothing, and the rest is counted as ever."""
    facts = facts_of(LLAMA)
    empty = tuple(
        replace(group, shape=(0, 4096), logical_shape=None, parameters=0, stored_bytes=0)
        if "q_proj" in group.pattern
        else group
        for group in facts.tensor_groups
    )
    whole = rank_facts(facts, settle_training(facts, replace(BASE, tp=2)).sharing, 0)
    divided = rank_facts(replace(facts, tensor_groups=empty), settle_training(facts, replace(BASE, tp=2)).sharing, 0)
    for with_all, without in zip(whole.tensor_groups, divided.tensor_groups, strict=True):
        assert without.parameters == (0 if "q_proj" in without.pattern else with_all.parameters)


@pytest.mark.parametrize("ranks", [2, 4])
def test_biases_of_divided_matrices(ranks: int) -> None:
    """What follows the columns is divided with them; what is added to the sum of all ranks' parts is whole on each.

    NVIDIA/Megatron-LM@960c06b9 megatron/core/tensor_parallel/layers.py, RowParallelLinear.
    """
    facts = facts_of("gpt2")
    mine = rank_facts(facts, settle_training(facts, replace(BASE, tp=ranks, gpus=ranks)).sharing, 0)
    parameters = {group.pattern: group.parameters for group in mine.tensor_groups if group.kind == "bias"}
    assert parameters == {
        "h.*.attn.c_attn.bias": 12 * 3 * 768 // ranks,
        "h.*.mlp.c_fc.bias": 12 * 4 * 768 // ranks,
        "h.*.attn.c_proj.bias": 12 * 768,
        "h.*.mlp.c_proj.bias": 12 * 768,
    }


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("llama-2-7b-hf", {"embedding"}, {"head"}), ("qwen2-0.5b-instruct", {"embedding"}, {"embedding"})],
)
def test_the_ends_of_a_pipeline(name: str, first: set[str], last: set[str]) -> None:
    """Words are read on the first stage and made on the last, which has a copy of the embedding where both are one matrix.

    NVIDIA/Megatron-LM@00c2c0ad megatron/core/models/common/language_module/language_module.py, share_embeddings_and_output_weights.
    """
    facts = facts_of(name)
    sharing = settle_training(facts, replace(BASE, pp=2)).sharing
    for stage, expected in ((0, first), (1, last)):
        roles = {group.role for group in rank_facts(facts, sharing, stage).tensor_groups}
        assert roles & {"embedding", "head"} == expected
