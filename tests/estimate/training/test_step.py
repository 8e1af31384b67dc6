"""A whole step: formulas that give their own numbers again, and laws between workloads."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fixture_models import NAMES, facts_of
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate.modes import estimate
from hubaudit.types import Estimate, Workload

QWEN = "qwen2-0.5b-instruct"
BASE = Workload(mode="train", sequence_tokens=1024, recipe="bf16")
GIB = 2**30


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"attention": "eager", "recipe": "amp"},
        {"gradient_checkpointing": "full", "checkpoint_every": 3},
        {"gradient_checkpointing": "selective", "attention": "eager"},
        {"lora": 8, "lora_targets": "all-linear", "lora_variant": "dora"},
        {"lora": 8, "lora_targets": "all-linear", "quant": "nf4", "loss": "fused"},
        {"loss": "chunked", "grad_accum": 4, "recipe": "mixed-18"},
    ],
    ids=str,
)
def test_every_component_follows_from_its_formula(name: str, asked: dict[str, object]) -> None:
    """The bytes agree with the formula over the inputs, evaluated by Python itself; every input has its source; the total is the peak."""
    facts = facts_of(name)
    if facts.quantization is not None and ("lora" not in asked or "quant" in asked):
        pytest.skip("quantized weights are not trained themselves")
    if facts.moe is not None and asked.get("lora_variant") == "dora":
        pytest.skip("PEFT has no DoRA for fused experts")
    made = estimate(facts, replace(BASE, sequence_tokens=256, **asked))  # type: ignore[arg-type]
    for item in made.components:
        functions = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
        assert eval(item.formula, {"__builtins__": {}}, {**functions, **item.inputs}) == item.bytes  # noqa: S307
        assert item.low_bytes <= item.bytes <= item.high_bytes
        assert {source.partition(":")[0] for source in item.sources} == {*item.inputs, "formula"}
        assert set(re.findall(r"[a-z_A-Z]\w*", item.formula)) - set(functions) == set(item.inputs)
    assert made.total_bytes == sum(item.bytes for item in made.components) == max(one.bytes for one in made.phases)


def total(**asked: object) -> int:
    """The peak of Qwen2-0.5B with this asked."""
    return estimate(facts_of(QWEN), replace(BASE, **asked)).total_bytes  # type: ignore[arg-type]


@given(batch=st.integers(1, 64), tokens=st.integers(1, 8192), accumulate=st.sampled_from([1, 4]))
def test_more_data_never_needs_less(batch: int, tokens: int, accumulate: int) -> None:
    """A larger batch, longer sequences and gradients that are kept over batches never lower the peak."""
    here = total(batch_size=batch, sequence_tokens=tokens, grad_accum=accumulate)
    assert here <= total(batch_size=batch + 1, sequence_tokens=tokens, grad_accum=accumulate)
    assert here <= total(batch_size=batch, sequence_tokens=tokens + 1, grad_accum=accumulate)
    assert here <= total(batch_size=batch, sequence_tokens=tokens, grad_accum=accumulate + 4)


@given(
    batch=st.integers(1, 16), tokens=st.sampled_from([128, 1024, 4096]), attention=st.sampled_from(["sdpa", "eager"])
)
def test_checkpointing_and_smaller_losses_never_need_more(batch: int, tokens: int, attention: str) -> None:
    """Full ≤ selective ≤ no checkpointing; a held output costs 2 bytes a logit where the loss is the peak; fused losses cost least.

    Chunks cost more than they save where there are few tokens: each makes a gradient of the head, of which three are alive (as traced).
    """
    asked = {"batch_size": batch, "sequence_tokens": tokens, "attention": attention}
    none = total(**asked)
    assert total(**asked, gradient_checkpointing="full") <= none
    assert total(**asked, gradient_checkpointing="selective") <= none
    chunked = total(**asked, loss="chunked")
    assert total(**asked, loss="fused") <= chunked
    assert total(**asked, loss="fused") <= none <= total(**asked, loss="held")
    if batch * tokens >= 896:  # its hidden size
        assert chunked <= none


def test_bytes_a_logit() -> None:
    """The loss's part of the peak is 12 bytes a logit, 14 while a 16-bit output is held, 16 for a float32 one (FORMULAS of Soup and canifinetune)."""
    logits = 1024 * 151_936

    def share(**asked: object) -> int:
        made = estimate(facts_of(QWEN), replace(BASE, gradient_checkpointing="full", **asked))  # type: ignore[arg-type]
        return next(item.bytes for item in made.components if item.id == "logits")

    assert share() == 12 * logits
    assert share(loss="held") == 14 * logits
    assert share(loss="held", lora=16, quant="nf4") == 16 * logits


def test_full_training_of_7b_needs_three_to_four_times_its_weights() -> None:
    """A 7B model trained whole in bf16 needs 3–4 times its inference weights before activations (weights, gradients, two states: 4)."""
    facts = facts_of("llama-2-7b-hf")
    made = estimate(facts, replace(BASE, sequence_tokens=64, gradient_checkpointing="full", recipe="fp16"))
    inference = facts.parameters.loaded * 2 if facts.parameters else 0
    assert 3 <= made.total_bytes / inference <= 4.1


def test_the_twelve_linear_program() -> None:
    """12 × Linear(1024), Adam in fp32, batch 32: the five published figures of allocated memory, 48.30 / 49.80 / 49.92 / 97.97 / 194.06 "MB" (MiB)."""
    from hubaudit.estimate.component import given as known
    from hubaudit.estimate.training.optimizers import optimizer_named, state_component
    from hubaudit.estimate.training.tensors import Trained, elements_of

    layers = (Trained(role="mlp", shape=(1024, 1024), count=12), Trained(role="mlp", shape=(1024,), count=12))
    weights = 4 * elements_of(layers)
    states = state_component(layers, optimizer_named("adamw_loop"), known(32, "fp32")).bytes
    batch = 2 * 32 * 1024 * 4  # input and target
    activations = 12 * 32 * 1024 * 4
    mib = 2**20
    assert round((weights + batch) / mib, 2) == 48.30
    assert round((weights + batch + activations) / mib, 2) == 49.80
    assert round((weights + batch + activations + 32 * 1024 * 4) / mib, 2) == 49.92  # mse_loss keeps its whole buffer
    # after backward the program still holds its activations and the loss
    after = 2 * weights + batch + activations + 32 * 1024 * 4
    assert round(after / mib, 2) == 97.97
    assert round((after + states) / mib, 2) == 194.06


def test_what_is_not_modelled_is_left_out_with_a_reason() -> None:
    """States are estimated, activations are an omission that names what is not modelled, and no verdict can then say that it fits."""
    facts = replace(facts_of(QWEN), model_type="rwkv")
    made = estimate(facts, BASE)
    assert made.omitted[0].id == "activations"
    assert "rwkv" in made.omitted[0].reason
    assert any("not in the total" in line for line in made.assumptions)


def test_lora_of_llama_3_2_3b_by_hand() -> None:
    """Rank 32 on q_proj and v_proj of 28 layers, 3072 wide with 8 × 128 of values: 9,175,040 parameters (peft method_comparison)."""
    from hubaudit.estimate.training.lora import trained_tensors
    from hubaudit.estimate.training.setting import settle_training
    from hubaudit.estimate.training.tensors import elements_of
    from hubaudit.facts.model import understand
    from hubaudit.types import RepoSnapshot

    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
        "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    facts = understand(
        RepoSnapshot(repo_id="org/model", revision=None, commit=None, source="local", configs={"config.json": config})
    )
    setting = settle_training(facts, replace(BASE, lora=32))
    assert setting.adapters is not None
    assert elements_of(trained_tensors(facts, setting.adapters)) == 9_175_040


def test_targets_that_no_module_has_are_refused() -> None:
    """A name that nothing matches, and a model type that PEFT has no default for."""
    with pytest.raises(UsageError, match="no module has the name"):
        estimate(facts_of(QWEN), replace(BASE, lora=8, lora_targets="hope"))
    with pytest.raises(UsageError, match="no default targets"):
        estimate(facts_of("lfm2-1.2b"), replace(BASE, lora=8))
    with pytest.raises(UsageError, match="no module is called"):
        estimate(facts_of(QWEN), replace(BASE, lora=8, modules_to_save=("faith",)))


def test_autocast_keeps_casts_of_every_matrix_and_nothing_else_does() -> None:
    """Qwen2-0.5B by hand: 494,032,768 parameters but its 49 norms of 896, two bytes each; none where no autocast runs."""
    casts = {
        recipe: {part.id: part.bytes for part in estimate(facts_of(QWEN), replace(BASE, recipe=recipe)).components}
        for recipe in ("amp", "bf16", "fp32")
    }
    assert casts["amp"]["weight_casts"] == 2 * (494_032_768 - 49 * 896)
    assert "weight_casts" not in casts["bf16"] | casts["fp32"]


def peak(made: Estimate) -> str:
    """The phase of the peak."""
    return made.peak_phase or ""


def test_the_peak_moves_between_phases() -> None:
    """Short sequences: the update, or the gradients all at once; long ones: the loss."""
    facts = facts_of("llama-2-7b-hf")
    short = replace(BASE, sequence_tokens=16, optimizer="adamw_foreach")
    assert peak(estimate(facts, short)) == "optimizer"
    assert peak(estimate(facts, replace(BASE, sequence_tokens=4096, batch_size=8))) == "backward"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, True),
        ({"gradient_checkpointing": "full"}, True),
        ({"sequence_tokens": 16}, False),
        ({"grad_accum": 2}, False),
    ],
    ids=str,
)
def test_gradients_that_are_not_there_at_the_peak_are_named(asked: dict[str, object], said: bool) -> None:
    """One looks for gradients among the parts: where the peak comes before them, a note gives their size, here 494,032,768 in 2 bytes."""
    made = estimate(facts_of(QWEN), replace(BASE, **asked))  # type: ignore[arg-type]
    notes = [note for note in made.assumptions if note.startswith("gradients take 942.29 MiB once all are there")]
    assert bool(notes) is said
    assert any(part.id == "gradients" for part in made.components) is not said


def test_dropout_and_magnitudes_take_more() -> None:
    """Of each adapter: with dropout a mask and a copy of its input, with DoRA the results of base and adapter."""
    asked = {"recipe": "bf16", "lora": 8, "lora_targets": "all-linear", "batch_size": 4}
    plain = total(**asked)
    assert total(**asked, lora_dropout=True) > plain
    assert total(**asked, lora_variant="dora") > plain
