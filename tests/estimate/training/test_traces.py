"""Peaks of training steps against traces of the real model code, for every family of fixtures, as they are recorded in fixtures/training."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
from fixture_models import ROOT

from hubaudit.estimate.modes import estimate
from hubaudit.facts.model import understand
from hubaudit.types import RepoSnapshot, Workload


def _tool() -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module("tools.training_traces")
    finally:
        sys.path.remove(str(ROOT))


TOOL = _tool()
RECORDED = TOOL.recorded()


def _within(family: str, case: str, percent: float) -> None:
    made = TOOL.estimated(family, case)
    assert not made.omitted
    assert TOOL.allocated_bytes(made) == pytest.approx(RECORDED[family, case]["peak_bytes"], rel=percent / 100)


CELLS = [cell for cell, row in RECORDED.items() if "error" not in row]


@pytest.mark.parametrize(("family", "case"), CELLS)
def test_a_step_is_that_of_the_real_model_code(family: str, case: str) -> None:
    """The most that is alive at once within 2 %, on every family of fixtures and in every case that was traced."""
    _within(family, case, 2)


#: Exact mode's autocast does not take `Tensor.baddbmm`, by which BLOOM adds ALiBi to the scores, so its own code stops there.
NOT_TRACED = {("BLOOM", "AMP")}


def test_the_heads_gradient_under_autocast() -> None:
    """Where the logits are what takes most, a byte more for each weight of the head would show: within 1 %."""
    _within("llama-3.1-8b", "large vocabulary, AMP", 1)


@pytest.mark.parametrize("case", ["plain", "checkpointing", "eager", "AMP"])
def test_every_family_is_traced(case: str) -> None:
    """No family of fixtures is left out, but for what cannot be traced."""
    left_out = {family for family, name in NOT_TRACED if name == case}
    assert {family for family, name in CELLS if name == case} == set(TOOL.families()) - left_out
    assert all("Input dtypes must be the same" in RECORDED[cell]["error"] for cell in NOT_TRACED)


@pytest.mark.parametrize("case", TOOL.SAMPLED)
def test_options_are_traced_on_a_sample(case: str) -> None:
    """A dense model, one with layer norms and dropout, a mixture; and the classes with losses of their own where the loss is looked at."""
    assert {family for family, name in CELLS if name == case} == set(TOOL.sampled(case))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "case"),
    [
        ("qwen2-0.5b-instruct", "AMP"),
        ("lfm2-1.2b", "eager"),
        ("t5-small", "checkpointing"),
        ("bert-base-uncased", "LoRA"),
        ("deepseek-v2-lite", "plain"),
        ("gpt2", "chunked loss"),
        ("gpt2", "eager, selective"),
        ("llama-3.1-8b", "checkpointing, 2 layers"),
    ],
)
def test_recorded_traces_are_those_of_today(family: str, case: str) -> None:
    """A sample, traced anew, gives the recorded bytes."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert TOOL.traced_bytes(family, case) == RECORDED[family, case]["peak_bytes"]


def test_what_was_not_traced_is_not_told() -> None:
    """Granite 4 hybrids with routed experts are of the same type as those without, whose traces say nothing of experts."""
    family = "Granite 4 hybrid"
    config = TOOL.config_of(family, "plain") | {"num_local_experts": 8, "num_experts_per_tok": 2}
    snapshot = RepoSnapshot(repo_id=family, revision=None, commit=None, source="local", configs={"config.json": config})
    made = estimate(understand(snapshot), Workload(mode="train", batch_size=1, sequence_tokens=64))
    assert any("experts" in gap.reason for gap in made.omitted)
