"""Fits, tight, no, or not to be known: the borders between them, and the least number of devices."""

from __future__ import annotations

import pytest
from fixture_models import facts_of
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.estimate.infer import estimate
from hubaudit.fit.catalogue import hardware_named
from hubaudit.fit.judge import judge
from hubaudit.fit.verdict import min_devices, on_one_device, verdict
from hubaudit.types import Category, Component, Estimate, Hardware, Omission, Workload


def part(category: Category, low: int, middle: int, high: int) -> Component:
    """A component of these bytes."""
    return Component(
        id=category.lower(),
        category=category,
        bytes=middle,
        formula="x",
        inputs={"x": middle},
        exactness="formula",
        sources=(),
        low_bytes=low,
        high_bytes=high,
    )


def made(*parts: Component, omitted: tuple[Omission, ...] = ()) -> Estimate:
    """An estimate of these parts."""
    return Estimate(
        fidelity="formula",
        components=parts,
        total_bytes=sum(one.bytes for one in parts),
        low_bytes=sum(one.low_bytes for one in parts),
        high_bytes=sum(one.high_bytes for one in parts),
        omitted=omitted,
    )


MODEL = made(part("Parameter", 1000, 1000, 1000), part("Activation", 50, 100, 150), part("Context", 5, 10, 30))
LACKING = made(part("Parameter", 1000, 1000, 1000), omitted=(Omission(id="activations", reason="made up"),))


@pytest.mark.parametrize(
    ("usable", "expected"), [(1180, "fits"), (1179, "tight"), (1110, "tight"), (1109, "no"), (1, "no")]
)
def test_the_band_decides(usable: int, expected: str) -> None:
    """Its upper end for `fits`, its middle for `tight`."""
    assert on_one_device(MODEL, usable) == expected


@pytest.mark.parametrize(("usable", "expected"), [(10**9, "unknown"), (1000, "unknown"), (999, "no")])
def test_an_incomplete_estimate_can_only_say_no(usable: int, expected: str) -> None:
    """What is known of it may be too much already; that it fits cannot be known."""
    word, reason = verdict(LACKING, Hardware(name="made up", usable_bytes=usable))
    assert word == expected
    assert (reason == "the estimate lacks activations") == (expected == "unknown")


@given(usable=st.integers(1, 3000), sizes=st.lists(st.integers(0, 2000), max_size=6), own=st.integers(0, 100))
def test_the_least_number_of_devices_is_the_least(usable: int, sizes: list[int], own: int) -> None:
    """So many devices hold the parts cut evenly and an overhead each, one device fewer does not."""
    shared = sum(sizes)
    least = min_devices(
        made(*(part("Parameter", size, size, size) for size in sizes), part("Context", own, own, own)), usable
    )
    if least is None:
        assert usable <= own
        return
    assert shared <= least * (usable - own)
    assert least == 1 or shared > (least - 1) * (usable - own)


@pytest.mark.parametrize(
    ("usable", "count", "expected"),
    [
        (1180, 8, "fits"),  # one is enough
        (1110, 2, "tight"),
        (600, 2, "unknown"),  # 550 + 10 each, if it could be cut so
        (559, 2, "no"),
        (559, 3, "unknown"),
        (10, 1000, "no"),  # every device is full of its own context
    ],
)
def test_several_devices_are_judged_by_what_is_certain(usable: int, count: int, expected: str) -> None:
    """One that holds all, or too few by any split; in between the split decides, which is not estimated."""
    assert verdict(MODEL, Hardware(name="made up", usable_bytes=usable, count=count))[0] == expected


@pytest.mark.parametrize(
    ("gpu", "quant", "expected"),
    [
        (
            "rtx4090",
            None,
            "fits",
        ),  # vLLM serves it in bf16 on 24 GB cards: weights 14.99 GiB (llm-d-planner, H100 runs)
        ("t4", None, "no"),  # weights alone are 14.96 GiB of 14.56
        ("rtx3070", None, "no"),
        ("rtx3070", "nf4", "fits"),  # 5.6 GiB (unsloth/Meta-Llama-3.1-8B-bnb-4bit on the Hub: 5.7 GB of files)
        ("gtx960", "nf4", "no"),
    ],
)
def test_llama_8b_on_well_known_cards(gpu: str, quant: str | None, expected: str) -> None:
    """As everybody who tried it knows."""
    facts, workload = facts_of("llama-3.1-8b"), Workload(quant=quant)
    (fit,) = judge(facts, workload, estimate(facts, workload), (hardware_named(gpu),))
    assert fit.verdict == expected
    assert fit.headroom_bytes is not None
    assert (fit.headroom_bytes >= 0) == (expected == "fits")


def test_where_the_verdict_is_unknown_so_are_the_limits() -> None:
    """Two cards of which one is not enough, and a model type of which transformers has no plan to split it: neither a batch nor a context nor room that is left can be named."""
    facts, workload = facts_of("falcon-7b-instruct"), Workload()
    (fit,) = judge(facts, workload, estimate(facts, workload), (hardware_named("rtx3060x2"),))
    assert (fit.verdict, fit.max_batch, fit.max_context, fit.best_precision) == ("unknown", None, None, None)
    assert fit.headroom_bytes is None
    assert fit.reason
    assert (fit.min_devices, fit.split) == (2, None)


def test_a_report_of_the_cache_alone_says_so() -> None:
    """`--mode kv` weighs no weights."""
    facts, workload = facts_of("llama-3.1-8b"), Workload(mode="kv")
    (fit,) = judge(facts, workload, estimate(facts, workload), (hardware_named("t4"),))
    assert fit.verdict == "fits"
    assert fit.reason is not None
    assert "KV cache alone" in fit.reason
    assert fit.best_precision is None
