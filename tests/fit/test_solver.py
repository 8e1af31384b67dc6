"""The solver's answers are those of asking the estimator about every batch, context and precision in turn."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from fixture_models import NAMES, facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.estimate.infer import estimate
from hubaudit.estimate.setting import definite
from hubaudit.fit.solver import Scale, best_precision, largest_batch, longest_context
from hubaudit.types import CacheTensor, LayerSpec, ModelFacts, Workload

NEW = 3
MOST = 12
WORKLOAD = Workload(prompt_tokens=5, new_tokens=NEW)


@cache
def weight(name: str, batch_size: int, prompt_tokens: int) -> int:
    """The upper end of the estimate's band, from the estimator alone."""
    workload = Workload(batch_size=batch_size, prompt_tokens=prompt_tokens, new_tokens=NEW)
    return estimate(facts_of(name), workload).high_bytes


def limits(weights: list[int]) -> st.SearchStrategy[int]:
    """Sizes of devices around the weights: below the smallest, exactly one of them, or in between."""
    return st.one_of(st.sampled_from(weights), st.integers(weights[0] - 2, weights[-1] - 1))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_batches_and_contexts_are_those_of_a_brute_force_search(name: str, data: st.DataObject) -> None:
    """For every fixture, over small ranges, on devices of any size within them."""
    scale = Scale(facts_of(name), WORKLOAD)

    batches = [weight(name, batch, 5) for batch in range(1, MOST + 1)]
    usable = data.draw(limits(batches), "usable for batches")
    if usable < batches[-1]:
        assert largest_batch(scale, usable) == sum(bytes_ <= usable for bytes_ in batches)

    contexts = [weight(name, 1, prompt) for prompt in range(1, MOST + 1)]
    usable = data.draw(limits(contexts), "usable for contexts")
    if usable < contexts[-1]:
        fitting = sum(bytes_ <= usable for bytes_ in contexts)
        assert longest_context(scale, usable) == (fitting + NEW if fitting else 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("usable_gib", [8, 80])
def test_one_more_never_fits(name: str, usable_gib: int) -> None:
    """At real sizes: the answer itself fits, the next batch or token does not, unless the model's own limit is reached."""
    facts, usable = facts_of(name), usable_gib * 2**30
    asked = definite(facts, Workload())
    workload = Workload(prompt_tokens=asked.prompt_tokens, new_tokens=asked.new_tokens)
    scale = Scale(facts, workload)
    batch, context = largest_batch(scale, usable), longest_context(scale, usable)
    if batch is not None:
        assert batch == 0 or estimate(facts, replace(workload, batch_size=batch)).high_bytes <= usable
        assert estimate(facts, replace(workload, batch_size=batch + 1)).high_bytes > usable
    if context is not None:
        prompt = max(0, context - (asked.new_tokens or 0))
        assert prompt == 0 or estimate(facts, replace(workload, prompt_tokens=prompt)).high_bytes <= usable
        if context != facts.max_positions.value:
            assert estimate(facts, replace(workload, prompt_tokens=prompt + 1)).high_bytes > usable


@pytest.mark.parametrize("name", NAMES)
def test_the_best_precision_is_the_first_that_fits(name: str) -> None:
    """Of the load dtype, bf16, int8 and nf4 in that order, by the estimator's own figures."""
    facts = facts_of(name)
    asked = definite(facts, Workload())
    scale = Scale(facts, Workload())
    if facts.quantization is not None:
        high = estimate(facts, Workload()).high_bytes
        assert best_precision(scale, high) == facts.quantization.method
        assert best_precision(scale, high - 1) is None
        return
    half = "bf16" if asked.dtype == "fp32" else asked.dtype
    ladder = {asked.dtype: (asked.dtype, None), half: (half, None), "int8": (half, "int8"), "nf4": (half, "nf4")}
    weights = {
        word: estimate(facts, Workload(dtype=dtype, quant=quant)).high_bytes for word, (dtype, quant) in ladder.items()
    }
    for usable in {high + delta for high in weights.values() for delta in (-1, 0, 1)}:
        fitting = [word for word, high in weights.items() if high <= usable]
        assert best_precision(scale, usable) == (fitting[0] if fitting else None)


def waiting(facts: ModelFacts) -> ModelFacts:
    """The model with layers that compress four tokens into one entry, and keep three at most until it is full."""
    tensors = (
        CacheTensor(name="entries", elements_per_token=64, tokens_per_entry=4),
        CacheTensor(name="waiting", elements_per_token=640, tokens_per_entry=4, unfinished=True),
    )
    layers = tuple(LayerSpec(index=at, kind="compressed", tensors=tensors, where="made up") for at in range(8))
    return replace(facts, layer_plan=layers)


def test_a_context_fits_only_where_every_shorter_one_does() -> None:
    """Where a full entry weighs less than the tokens it was made of, a longer context can fit again, and is no answer."""
    facts = waiting(facts_of("qwen2-0.5b-instruct"))
    scale = Scale(facts, replace(WORKLOAD, mode="kv"))
    weights = {tokens: scale.of_context(tokens) for tokens in range(NEW + 1, 40)}
    assert any(weights[tokens + 1] < weights[tokens] for tokens in range(NEW + 1, 39))
    for usable in sorted({value + delta for value in weights.values() for delta in (-1, 0)}):
        if usable >= max(weights.values()):
            continue
        expected = 0
        for tokens, high in weights.items():
            if high > usable:
                break
            expected = tokens
        assert longest_context(scale, usable) == expected


def test_what_nothing_limits_has_no_limit() -> None:
    """A cache that does not grow, of a model that declares no positions: any context."""
    facts = facts_of("mamba-130m-hf")
    assert longest_context(Scale(facts, Workload(mode="kv")), 2**40) is None
    assert largest_batch(Scale(facts, Workload(mode="kv")), 2**60) is None


def test_the_context_ends_at_the_models_positions() -> None:
    """However much memory there is."""
    assert longest_context(Scale(facts_of("qwen2-0.5b-instruct"), Workload()), 2**60) == 32_768
