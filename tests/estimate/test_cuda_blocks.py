"""Remainders of the weights' blocks against the replayed allocator, which is held against torch's own elsewhere (tests/exact/test_allocator.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fixture_models import facts_of
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.estimate.cuda_blocks import Run, allocated_bytes, block_remainders, laid_out, rounded
from hubaudit.exact.allocator import CachingAllocator
from hubaudit.hub.bundle import read_bundle

BUNDLES = Path(__file__).resolve().parents[2] / "fixtures" / "bundles"


def _replayed(sizes: list[int]) -> int:
    allocator = CachingAllocator()
    for size_bytes in sizes:
        allocator.malloc(size_bytes)
    return allocator.allocated_bytes


@given(st.lists(st.one_of(st.integers(1, 2**21), st.integers(2**20, 2**26)), max_size=60))
def test_blocks_are_the_allocators_own(sizes: list[int]) -> None:
    """Whatever is asked for one after another, small and large, it is what a fresh allocator counts, to the byte."""
    assert allocated_bytes(sizes) == _replayed(sizes)
    assert sum(map(rounded, sizes)) <= allocated_bytes(sizes)


def test_a_config_may_say_any_number_of_layers() -> None:
    """Three tensors are laid out once each, though the config speaks of a billion layers."""
    runs = [Run(100, 3, in_layers=True, is_fused=False), Run(7, 1, in_layers=False, is_fused=False)]
    assert list(laid_out(runs, 10**9)) == [7, 100, 100, 100]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize(
    "name", ["qwen2-0.5b-instruct", "gpt2", "bert-base-uncased", "t5-small", "gemma-3-4b-it", "deepseek-v2-lite"]
)
def test_weights_lie_as_the_model_moves_them(name: str, dtype: str) -> None:
    """Parameters of transformers' own class in the order of ``model.to()``: their blocks are told to the byte; buffers that no file holds come in between."""
    building = pytest.importorskip("hubaudit.exact.building", exc_type=ImportError)
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    config = read_bundle(BUNDLES / f"{name}.json.gz").configs["config.json"]
    model = building.build(config, {"BF16": "bf16", "F32": "fp32"}[dtype], "sdpa")
    saved = {name for name, _ in model.named_parameters()} | set(model.state_dict())
    sizes = [one.nelement() * one.element_size() for name, one in building.tensors_in_order(model) if name in saved]
    made = block_remainders(facts_of(name), dtype, pool_is_warmed=True)
    assert made is not None
    assert made.bytes == _replayed(sizes) - sum(sizes)
    assert made.low_bytes == sum(map(rounded, sizes)) - sum(sizes)


def test_without_names_of_modules_layers_are_laid_one_by_one() -> None:
    """GPT-2's order, known from its files alone: embeddings, then a layer's matrices; to the byte what the order of its modules gives, 6,429,184."""
    facts = facts_of("gpt2")
    told = block_remainders(facts, "BF16", pool_is_warmed=False)
    untold = block_remainders(replace(facts, built=()), "BF16", pool_is_warmed=False)
    assert told is not None
    assert untold is not None
    assert told.bytes == untold.bytes == told.low_bytes == 6_429_184
