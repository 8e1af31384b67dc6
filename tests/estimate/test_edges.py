"""Edges that changed lines showed to be without a test (docs/testing.md): bands, refusals, and what is said of a workload."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import facts_of

from hubaudit.errors import UsageError
from hubaudit.estimate import infer
from hubaudit.estimate.cache import plan_where
from hubaudit.estimate.cache_static import static_tensors
from hubaudit.estimate.component import component, given
from hubaudit.estimate.conversion import kept_by
from hubaudit.estimate.modes import estimate
from hubaudit.estimate.runtimes.layer_parts import NotModelledError
from hubaudit.estimate.runtimes.vllm_pages import _share_of_heads
from hubaudit.estimate.setting import settle
from hubaudit.estimate.split.devices import variants
from hubaudit.estimate.training.fsdp import _divided
from hubaudit.estimate.training.optimizers import quantities
from hubaudit.estimate.training.tensors import Trained, elements_of
from hubaudit.types import CacheTensor, LayerSpec, Workload
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from hubaudit.types import Mode

QWEN = "qwen2-0.5b-instruct"


def test_a_band_is_rounded_outwards() -> None:
    """10 % of 1,001 bytes: a byte is never outside because of the rounding."""
    made = component(
        "x", "Other", "n", {"n": given(1_001, "asked")}, exactness="formula", source="-", band_percent=(10, 10)
    )
    assert (made.low_bytes, made.high_bytes) == (901, 1_102)


@pytest.mark.parametrize("pattern", ["[", "(?P<", "a{99999999999}", "(?:" * 5_000 + ")" * 5_000])
def test_a_module_to_skip_that_is_no_pattern(pattern: str) -> None:
    """It is told as a usage error, also where Python's compiler of patterns ends otherwise than by its own error."""
    with pytest.raises(UsageError, match="no regular expression"):
        kept_by((pattern,))


@pytest.mark.parametrize(
    ("model_type", "words"),
    [("of-nobody", "the model type of-nobody"), (None, "a model that names no type")],
)
def test_whose_adapters_have_no_default_targets(model_type: str | None, words: str) -> None:
    """The message names the type, where there is one."""
    facts = replace(facts_of(QWEN), model_type=model_type)
    with pytest.raises(UsageError, match=f"no default targets for {words}"):
        estimate(facts, Workload(mode="train", lora=8))


@pytest.mark.parametrize(
    ("asked", "choice", "where"),
    [
        ({}, "greedy", "workload"),
        ({"num_return_sequences": 2}, "sampled", "workload: batch 3 × 2 sequences each"),
        ({"num_beams": 2}, "beams", "workload: batch 3 × 2 sequences each"),
    ],
)
def test_several_sequences_of_a_prompt(asked: dict[str, int], choice: str, where: str) -> None:
    """Two are several, and the batch says what it was made of."""
    setting = settle(facts_of(QWEN), Workload(batch_size=3, **asked))  # type: ignore[arg-type]
    assert (setting.choice, setting.batch_size.where) == (choice, where)


def test_what_packed_weights_would_become_is_said() -> None:
    """gpt-oss-20b: 20,914,757,184 parameters (its card says 21B) at 16 bits, where no kernel keeps MXFP4."""
    facts = facts_of("gpt-oss-20b")
    assert facts.parameters is not None
    assert facts.parameters.loaded == 20_914_757_184
    said = " ".join(estimate(facts, Workload(prompt_tokens=16)).assumptions)
    assert f"elsewhere transformers 5.23 unpacks them to {format_bytes(2 * 20_914_757_184)}" in said


def test_a_state_of_each_tensor_is_one() -> None:
    """A step counter or a scale is kept once for a tensor, a matrix or not."""
    for shape in ((7,), (7, 5)):
        assert quantities(Trained(role="mlp", shape=shape, count=1), 4)["tensors"] == 1


def test_one_device_has_the_variants_of_no_split() -> None:
    """Nothing is shared, nothing is communicated."""
    facts, workload = facts_of(QWEN), Workload(prompt_tokens=64)
    assert variants(facts, workload) == infer.variants(facts, workload)


def test_two_devices_have_less_of_the_widest_weights_each() -> None:
    """float32 weights are shared, which saves more than the buffer of communication takes."""
    facts = facts_of(QWEN)
    alone, shared = variants(facts, Workload(prompt_tokens=64)), variants(facts, Workload(prompt_tokens=64, tp=2))
    assert len(alone) == len(shared)
    assert alone[0].dtype == shared[0].dtype == "fp32"
    assert shared[0].total_bytes < alone[0].total_bytes


@pytest.mark.parametrize(
    "odd",
    [
        CacheTensor(name="pooled_keys", elements_per_token=8, tokens_per_entry=4),
        CacheTensor(name="pooled_keys", elements_per_token=8, unfinished=True),
        CacheTensor(name="pooled_keys", elements_per_token=8, grows_with="prompt_tokens"),
    ],
    ids=["entries of several tokens", "unfinished", "of the prompt"],
)
def test_what_no_static_layer_keeps(odd: CacheTensor) -> None:
    """A static cache is refused, with the tensor's name in words."""
    with pytest.raises(UsageError, match="no static cache for pooled keys"):
        static_tensors((LayerSpec(index=0, kind="odd", tensors=(odd,), where="made up"),))


def test_a_shared_run_tells_the_optimizer_by_itself() -> None:
    """States and the float32 weights that the step works on are one column, and every component is in one column."""
    made = estimate(facts_of(QWEN), Workload(mode="train", recipe="mixed-16", gpus=2, zero=1))
    states = sum(
        part.bytes for part in made.components if part.id == "master_weights" or part.category == "OptimizerState"
    )
    assert states
    assert states in {stage.optimizer_bytes for stage in made.stages}


@pytest.mark.parametrize("heads", [None, 2])
def test_entries_that_no_heads_divide(heads: int | None) -> None:
    """How vLLM would share three elements over two devices is told to be unknown."""
    facts = facts_of(QWEN)
    facts = replace(facts, kv_heads=replace(facts.kv_heads, value=heads))
    with pytest.raises(NotModelledError, match="3 elements a token over 2 devices"):
        _share_of_heads(facts, 3, 2)


@pytest.mark.parametrize(("version", "elements"), [(1, 11), (2, 16)])
def test_pieces_of_the_two_fsdps(version: int, elements: int) -> None:
    """4 × 8 over three: FSDP1 cuts the flat 32 into 11 (padded), FSDP2 the four rows into two each (docs of torch.distributed.fsdp)."""
    tensors = (Trained(role="mlp", shape=(4, 8), count=1),)
    assert elements_of(_divided(tensors, 1, 3, version)) == elements


@pytest.mark.parametrize("reason", [None, "the header is cut off"])
def test_why_a_step_has_no_weights(reason: str | None) -> None:
    """The facts' own reason, or that nothing is known of tensors."""
    facts = replace(facts_of(QWEN), tensor_groups=(), built=(), parameters=None, parameters_reason=reason)
    (weights,) = (one for one in estimate(facts, Workload(mode="train")).omitted if one.id == "weights")
    assert weights.reason == (reason or "no tensors are known")


def test_derived_layers_stay_as_they_are() -> None:
    """Falcon's FalconLinear is no nn.Linear itself, so bitsandbytes gets nothing of its index's 13,843,441,408 bytes.

    ``type(module) is nn.Linear`` in huggingface/transformers v5.23.0 src/transformers/integrations/bitsandbytes.py.
    """
    made = estimate(facts_of("falcon-7b-instruct"), Workload(quant="int8"))
    assert [part.bytes for part in made.components if part.id == "weights"] == [13_843_441_408]


def test_an_encoder_decoder_keeps_two_caches() -> None:
    """T5-small: six layers with eight heads of 64, keys and values of 16 bits, for ten new tokens and for the hundred of the prompt."""
    made = estimate(facts_of("t5-small"), Workload(prompt_tokens=100, new_tokens=10, dtype="bfloat16"))
    caches = {part.id: part.bytes for part in made.components if part.category == "KVCache"}
    assert caches == {"kv_cache": 2 * 6 * 8 * 64 * 10 * 2, "cross_cache": 2 * 6 * 8 * 64 * 100 * 2}


def test_where_a_plan_was_read() -> None:
    """Two places at most, in the order of the layers; none where there is no plan."""
    facts = facts_of(QWEN)
    layers = tuple(LayerSpec(index=at, kind="odd", tensors=(), where=where) for at, where in enumerate("abac"))
    assert plan_where(replace(facts, layer_plan=layers)) == "a; b"
    assert plan_where(replace(facts, layer_plan=None)) == ""


@pytest.mark.parametrize("mode", ["infer", "kv", "train"])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        *(({name: 0}, f"{name} must be at least 1") for name in ("tp", "pp", "ep", "cp", "gpus", "batch_size", "lora")),
        ({"pp": -1}, "pp must be at least 1"),
        ({"prompt_tokens": -5}, "prompt_tokens must be at least 1"),
        ({"new_tokens": -1}, "new_tokens must be at least 0"),
        ({"llm_int8_threshold": float("nan")}, "no number"),
        ({"llm_int8_threshold": float("inf")}, "no number"),
    ],
)
def test_what_nobody_can_ask_for(mode: Mode, asked: dict[str, Any], words: str) -> None:
    """Zero devices were divided by, and a threshold of infinity is no JSON: both are usage errors, through Python's door too."""
    with pytest.raises(UsageError, match=words):
        estimate(facts_of(QWEN), Workload(mode=mode, **asked))
