"""Weights, gradients, master copies and optimizer states: figures that others worked out, and laws."""

from __future__ import annotations

import re

import pytest
from fixture_models import NAMES, facts_of, made
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate.modes import estimate
from hubaudit.estimate.training.optimizers import optimizer_named, optimizer_names, state_component, step_bytes
from hubaudit.estimate.training.recipes import recipe_named, recipe_names
from hubaudit.estimate.training.setting import TrainSetting, settle_training
from hubaudit.estimate.training.states import standing
from hubaudit.estimate.training.tensors import Trained, whole_model
from hubaudit.facts.loading import loaded_groups
from hubaudit.facts.model import understand
from hubaudit.types import Component, ModelFacts, Workload

GB = 10**9


def dense(parameters: int) -> ModelFacts:
    """A model of so many parameters in one matrix."""
    return understand(made(None, {"layers.0.mlp.up_proj.weight": ("BF16", (1, parameters))}))


def held_by(facts: ModelFacts, setting: TrainSetting) -> tuple[Component, ...]:
    """The standing components."""
    held = standing(facts, setting)
    assert held is not None
    return held.components


def sizes(facts: ModelFacts, **asked: object) -> dict[str, int]:
    """Bytes of every standing component."""
    setting = settle_training(facts, Workload(mode="train", **asked))  # type: ignore[arg-type]
    return {part.id: part.bytes for part in held_by(facts, setting)}


@pytest.mark.parametrize(
    ("recipe", "weights", "gradients", "optimizer"),
    [("fp32", 28, 28, 56), ("fp16", 14, 14, 28), ("int8", 7, 7, 14), ("mixed-16", 42, 14, 56), ("fp64", 56, 56, 112)],
)
def test_llama_7b_by_recipe(recipe: str, weights: int, gradients: int, optimizer: int) -> None:
    """7e9 parameters with Adam: 28+28+56 = 112 GB in fp32, 56 in fp16, 28 in int8, mixed 42+14+56 = 112, as the tables of the blogs say."""
    held = sizes(dense(7 * GB), recipe=recipe)
    assert held["weights"] + held.get("master_weights", 0) == weights * GB
    assert held["gradients"] == gradients * GB
    assert held["optimizer"] == optimizer * GB


def test_88_million_parameters() -> None:
    """88.44 M in fp32: weights 0.345, gradients and Adam 1.036, together 1.38 "GB", in a document that divides megabytes by 1,024."""
    held = sizes(dense(88_440_000), recipe="fp32")
    odd_gigabyte = 10**6 * 1024
    assert round(held["weights"] / odd_gigabyte, 3) == 0.345
    assert round((held["gradients"] + held["optimizer"]) / odd_gigabyte, 3) == 1.036
    assert round(sum(held.values()) / odd_gigabyte, 2) == 1.38


@pytest.mark.parametrize(("optimizer", "width"), [("adamw", 8), ("adamw_8bit", 2), ("sgd_momentum", 4), ("sgd", 0)])
def test_bytes_a_parameter(optimizer: str, width: int) -> None:
    """AdamW 8, bitsandbytes' 8-bit AdamW 2 (and its block maxima), SGD with momentum 4 bytes for an fp32 parameter; gradients as weights."""
    held = sizes(dense(GB), recipe="fp32", optimizer=optimizer)
    assert held["optimizer"] // GB == width
    assert held["gradients"] == held["weights"]


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_add_up_to_what_people_quote(name: str) -> None:
    """Weights, master, gradients and two states give the bytes a parameter that the row's source names (16Φ, 18Φ, 20Φ, 8 in pure bf16)."""
    from hubaudit.data import table

    held = sizes(dense(GB), recipe=name)
    assert sum(held.values()) == table("recipes.toml")[name]["bytes_with_adam"] * GB
    assert recipe_named(name).source


def test_tensors_of_a_real_model_are_all_trained() -> None:
    """Full fine-tuning of Qwen2-0.5B in pure bf16 holds 8 bytes for each of its 494,032,768 parameters."""
    assert sum(sizes(facts_of("qwen2-0.5b-instruct")).values()) == 8 * 494_032_768


@pytest.mark.parametrize(("name", "tower"), [("gemma-3-4b-it", 419_816_304), ("qwen2.5-vl-7b-instruct", 676_550_144)])
def test_a_tower_that_nothing_goes_through_has_no_gradients(name: str, tower: int) -> None:
    """Text alone: 8 bytes a parameter but for the vision tower, which keeps its weights; a master copy and ZeRO are laid out for all of them."""
    facts = facts_of(name)
    everything = sum(group.parameters or 0 for group in loaded_groups(facts))
    held = sizes(facts)
    assert held["gradients"] == 2 * (everything - tower)
    assert held["optimizer"] == 4 * (everything - tower)
    assert held["weights"] == 2 * everything
    assert sizes(facts, recipe="mixed-16")["optimizer"] == 8 * everything
    assert sizes(facts, zero=1)["optimizer"] == 4 * everything
    said = [one for one in estimate(facts, Workload(mode="train", recipe="bf16")).assumptions if "text alone" in one]
    assert len(said) == 1


def test_embeddings_keep_32_bit_states_under_8_bit_optimizers() -> None:
    """The Trainer overrides embeddings: 8 bytes for each of Qwen2-0.5B's 136,134,656, 2 and the maxima for the rest, 8 for small vectors."""
    shapes = whole_model(facts_of("qwen2-0.5b-instruct"))
    embedding = sum(one.elements * one.count for one in shapes if one.role == "embedding")
    assert embedding == 136_134_656
    expected = 2048 + sum(
        one.count
        * (
            8 * one.elements
            if one.role == "embedding" or one.elements < 4096
            else 2 * one.elements + 8 * -(-one.elements // 256)
        )
        for one in shapes
    )
    assert sizes(facts_of("qwen2-0.5b-instruct"), optimizer="adamw_8bit")["optimizer"] == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit", "adafactor", "galore_adamw", "adamw_ao_4bit"])
def test_every_component_follows_from_its_formula(name: str, optimizer: str) -> None:
    """The bytes agree with the formula over the inputs, evaluated by Python itself, and every input has its source."""
    facts = facts_of(name)
    if facts.quantization is not None:
        pytest.skip("quantized weights are not trained themselves")
    for recipe in ("bf16", "amp", "mixed-20"):
        setting = settle_training(facts, Workload(mode="train", recipe=recipe, optimizer=optimizer))
        for item in held_by(facts, setting):
            functions = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
            assert eval(item.formula, {"__builtins__": {}}, {**functions, **item.inputs}) == item.bytes  # noqa: S307
            assert {source.partition(":")[0] for source in item.sources} == {*item.inputs, "formula"}
            assert set(re.findall(r"[a-z_A-Z]\w*", item.formula)) - set(functions) == set(item.inputs)


@given(
    rows=st.integers(1, 5000),
    columns=st.integers(1, 5000),
    optimizer=st.sampled_from(optimizer_names()),
)
def test_states_grow_with_the_tensor(rows: int, columns: int, optimizer: str) -> None:
    """One tensor more never takes less, and no optimizer keeps more than three states of 32 bit and their maxima."""
    from hubaudit.estimate.component import given as known

    one = Trained(role="mlp", shape=(rows, columns), count=1)
    row = optimizer_named(optimizer)
    single = state_component([one], row, known(32, "test")).bytes
    double = state_component([one, one], row, known(32, "test")).bytes
    assert single <= double
    if "apollo" not in optimizer and "galore" not in optimizer:
        assert single <= 12 * one.elements + 4096 + 4 * (rows + columns)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"recipe": "fp12"}, "unknown recipe"),
        ({"optimizer": "hope"}, "unknown optimizer"),
        ({"loss": "grief"}, "unknown loss"),
        ({"quant": "nf4"}, "not trained themselves"),
        ({"lora_targets": "q_proj"}, "not their rank"),
        ({"zero": 2, "fsdp": 2}, "shard the same"),
        ({"gpus": 3, "tp": 2}, "no multiple"),
        ({"runtime": "vllm"}, "does not train"),
        ({"recipe": "amp", "dtype": "bf16"}, "loads weights as fp32"),
        ({"batch_size": 0}, "at least 1"),
    ],
)
def test_what_does_not_exist_is_refused(asked: dict[str, object], word: str) -> None:
    """Each with the reason in one line and a hint or a number."""
    with pytest.raises(UsageError, match=word):
        settle_training(facts_of("qwen2-0.5b-instruct"), Workload(mode="train", **asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("optimizer", "own_bits", "expected"),
    [("adamw_foreach", 32, 4 * 3800), ("adamw_foreach", 16, 2 * 3800), ("adamw_loop", 32, 2 * 4 * 2000), ("adamw", 32, 0)],
)  # fmt: skip
def test_temporaries_of_an_update(optimizer: str, own_bits: int, expected: int) -> None:
    """torch.optim.adam: _foreach_sqrt makes a tensor for each parameter at once, the loop a root and a quotient for one after the other, the fused kernel none."""
    tensors = (Trained(role="mlp", shape=(20, 30), count=3), Trained(role="mlp", shape=(40, 50), count=1))
    assert step_bytes(tensors, optimizer_named(optimizer), own_bits) == expected
    assert step_bytes((), optimizer_named(optimizer), own_bits) == 0


@pytest.mark.parametrize("optimizer", optimizer_names())
def test_an_optimizer_passes_over_no_tensor(optimizer: str) -> None:
    """It keeps states of every tensor, whichever its last row is for, or of none (plain SGD)."""
    states = optimizer_named(optimizer).states
    assert (states[-1].of == "all") if states else optimizer == "sgd"
