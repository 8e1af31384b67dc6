"""Advice for training runs that do not fit."""

from __future__ import annotations

from dataclasses import replace

from fixture_models import facts_of

from hubaudit.estimate.modes import estimate
from hubaudit.fit.advice import advise
from hubaudit.types import Workload
from hubaudit.units import format_bytes

GIB = 2**30
RUN = Workload(mode="train", batch_size=8, sequence_tokens=2048, recipe="amp")


def test_the_cheapest_changes_come_first_and_stop_where_it_fits() -> None:
    """An 8B model whole on 24 GiB: checkpointing, 8-bit states, LoRA; each with bytes, cost and source."""
    said = advise(facts_of("llama-3.1-8b"), RUN, 24 * GIB)
    assert said is not None
    order = ["gradient checkpointing", "8-bit AdamW", "LoRA"]
    places = [said.index(word) for word in order]
    assert places == sorted(places)
    assert said.count(", which saves ") == said.count("; then ") + 1
    assert "arXiv" in said
    assert said.startswith("it fits, with ")


def test_what_little_is_missing_is_enough() -> None:
    """Where checkpointing alone is enough nothing else is advised."""
    facts = facts_of("qwen2-0.5b-instruct")
    usable = estimate(facts, replace(RUN, gradient_checkpointing="full")).high_bytes
    said = advise(facts, RUN, usable)
    assert said is not None
    needed = format_bytes(estimate(facts, replace(RUN, gradient_checkpointing="full")).total_bytes)
    assert said.startswith(f"it fits, with {needed}, after gradient checkpointing, which saves ")
    assert "then" not in said


def test_no_advice_is_no_promise() -> None:
    """A device that nothing makes large enough is told so, and inference gets no training advice."""
    said = advise(facts_of("llama-3.1-8b"), RUN, GIB)
    assert said is not None
    assert said.startswith("it does not fit even with ")
    assert advise(facts_of("llama-3.1-8b"), Workload(), GIB) is None
