"""Weights of adapters, of packed bases and of skipped modules: by count of elements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fixture_models import facts_of

from hubaudit.errors import UsageError
from hubaudit.estimate.component import given
from hubaudit.estimate.conversion import conversion_of
from hubaudit.estimate.cuda_blocks import block_remainders
from hubaudit.estimate.modes import estimate
from hubaudit.estimate.parts import adapter_weights
from hubaudit.estimate.quantized_weights import split
from hubaudit.estimate.runtimes.layer_parts import is_convolution, kernel_width
from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.states import weights_of
from hubaudit.facts.loading import ADAPTER, TUNER
from hubaudit.types import TensorGroup, Workload

QWEN = "qwen2-0.5b-instruct"


def group(
    kind: str, dtype: str, parameters: int, stored_bytes: int, *, role: str = ADAPTER, bits: int | None = None
) -> TensorGroup:
    """So many elements in one tensor of a name of its own."""
    pattern = f"{role}.{kind}.{dtype}.{bits}"
    return TensorGroup(
        pattern=pattern, role=role, kind=kind, dtype=dtype, shape=(parameters,), count=1, parameters=parameters, stored_bytes=stored_bytes, bits=bits
    )  # fmt: skip


def test_each_tensor_of_an_adapter_is_counted_in_one_way() -> None:
    """Peft 0.21.2: what is tuned becomes float32 unless it is wider, copies have the base's dtype, integers stay as they are."""
    groups = (group(TUNER, "F16", 100, 200), group(TUNER, "F64", 10, 80), group(TUNER, "I8", 50, 50), group("linear", "F32", 30, 120), group("buffer", "I64", 2, 16))  # fmt: skip
    facts = replace(facts_of(QWEN), tensor_groups=groups)
    made = adapter_weights(facts, given(16, "asked"))
    assert made is not None
    assert made.bytes == 4 * 100 + 30 * 16 // 8 + (80 + 50 + 16)


def test_a_packed_base_keeps_its_packing_while_adapters_are_trained() -> None:
    """Packed weights and their scales as stored; what is not packed in float32, as peft's prepare_model_for_kbit_training makes it."""
    groups = (
        group("linear", "I32", 800, 400, role="mlp", bits=4),
        group("linear", "F16", 64, 16, role="mlp", bits=4),
        group("scale", "F16", 0, 24, role="mlp"),
        group("norm", "F16", 10, 20, role="norm"),
    )
    facts = replace(facts_of(QWEN), tensor_groups=groups, stored_bytes=460, built=())
    setting = replace(settle_training(facts_of(QWEN), Workload(mode="train")), is_packed=True)
    made = weights_of(facts, setting)
    assert made is not None
    assert made.bytes == 400 + 16 + 24 + 4 * 10


@pytest.mark.parametrize(
    "asked",
    [
        {"lora_targets": "all-linear"},
        {"lora_variant": "dora"},
        {"modules_to_save": ("lm_head",)},
        {"lora_dropout": 0.1},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_adapters_are_like_needs_their_rank(asked: dict[str, object]) -> None:
    """Each by itself: nothing that is asked about adapters is dropped in silence."""
    with pytest.raises(UsageError, match="not their rank"):
        estimate(facts_of(QWEN), replace(Workload(mode="train"), **asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(("skipped", "is_certain"), [(("mlp",), False), (("mlp", "lm_head"), True)])
def test_a_tied_head_that_is_not_skipped(skipped: tuple[str, ...], *, is_certain: bool) -> None:
    """Transformers keeps the head by itself only where no modules are named: then it would convert it and tie it again, which is not counted as exact."""
    facts = facts_of(QWEN)
    assert facts.tied_embeddings.value
    conversion = conversion_of(Workload(quant="int8", llm_int8_skip_modules=skipped))
    assert conversion is not None
    made = split(facts, conversion, "F16")
    assert made is not None
    assert made.is_certain == is_certain


@pytest.mark.parametrize("ranks", [1, 2])
def test_who_says_where_experts_go(ranks: int) -> None:
    """Only where there is a split by experts."""
    made = estimate(facts_of("mixtral-8x7b-v0.1"), Workload(tp=2, ep=ranks))
    assert any(said.startswith("experts:") for said in made.assumptions) == (ranks > 1)


@pytest.mark.parametrize(
    "asked", [{"quant_group_size": 64}, {"llm_int8_skip_modules": ("mlp",)}], ids=["group", "skip"]
)
def test_options_of_quantizing_need_a_method(asked: dict[str, object]) -> None:
    """Each by itself: nothing that is asked about quantizing is dropped in silence."""
    with pytest.raises(UsageError, match="quantizing while loading"):
        estimate(facts_of(QWEN), replace(Workload(), **asked))  # type: ignore[arg-type]


def test_the_host_keeps_the_input_embedding() -> None:
    """llama.cpp leaves an embedding that is no head too in the host's memory: 128,256 × 4,096 values of 16 bits of Llama 3.1."""
    made = estimate(facts_of("llama-3.1-8b"), Workload(runtime="llama.cpp", dtype="float16"))
    (weights,) = (part for part in made.components if part.id == "weights")
    assert weights.bytes - weights.low_bytes == 2 * 128_256 * 4_096


def test_layers_of_another_name_are_not_cut() -> None:
    """Those of GPT-2 are called ``h``, which transformers does not cut into stages."""
    with pytest.raises(UsageError, match="called `layers`"):
        estimate(facts_of("gpt2"), Workload(pp=2))


def test_a_tensor_that_nobody_can_count_does_not_hide_the_next() -> None:
    """300 values of 16 bits take two blocks of 512 bytes, whatever stands before them."""
    unknown = replace(group("linear", "I32", 8, 32, role="mlp"), parameters=None)
    facts = replace(facts_of(QWEN), tensor_groups=(unknown, group("linear", "F16", 300, 600, role="mlp")), built=())
    made = block_remainders(facts, "F16", pool_is_warmed=True)
    assert made is not None
    assert made.bytes == 2 * 512 - 600


def test_the_width_of_a_convolution() -> None:
    """Mamba's kernel has 4 columns, as its config says; a bias beside it, whatever its name, is no kernel."""
    facts = facts_of("mamba-130m-hf")
    assert facts.layer_plan is not None
    states = [tensor for layer in facts.layer_plan for tensor in layer.tensors if is_convolution(tensor)]
    for groups in (facts.tensor_groups, facts.tensor_groups[::-1]):
        assert {kernel_width(replace(facts, tensor_groups=groups), state) for state in states} == {4}


@pytest.mark.parametrize(
    "asked", [{"loss": "x"}, {"offload": "x"}, {"lora": 8, "lora_variant": "x"}], ids=["loss", "offload", "variant"]
)
def test_words_that_nobody_knows(asked: dict[str, object]) -> None:
    """A choice that does not exist is refused, not passed over."""
    with pytest.raises(UsageError, match=r"unknown .* `x`"):
        estimate(facts_of(QWEN), replace(Workload(mode="train"), **asked))  # type: ignore[arg-type]


def test_the_least_rank_of_adapters() -> None:
    """Rank 1 has half the adapters of rank 2; rank 0 is none."""
    sizes = {
        rank: next(
            part.bytes
            for part in estimate(facts_of(QWEN), Workload(mode="train", lora=rank)).components
            if part.id == "adapters"
        )
        for rank in (1, 2)
    }
    assert sizes[2] == 2 * sizes[1] > 0
    with pytest.raises(UsageError, match="at least 1"):
        estimate(facts_of(QWEN), Workload(mode="train", lora=0))
