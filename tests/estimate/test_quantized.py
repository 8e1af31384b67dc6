"""Weights quantized while they are loaded: headers of real quantized repositories to the byte, worked sizes, and what is refused."""

from __future__ import annotations

import pytest
from fixture_models import facts_of, made, snapshot_of
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate.conversion import conversion_of, spellings
from hubaudit.estimate.dequantization import loading_temporaries
from hubaudit.estimate.infer import estimate, variants
from hubaudit.estimate.quantized_weights import Matrix, bytes_of, split
from hubaudit.estimate.setting import settle
from hubaudit.facts.repository import understand
from hubaudit.types import Component, ModelFacts, Workload


def weights(facts: ModelFacts, workload: Workload) -> Component:
    """The component of the weights."""
    return next(part for part in estimate(facts, workload).components if part.id == "weights")


def plain(name: str) -> ModelFacts:
    """The fixture's model before it was quantized, as its config describes it."""
    config = dict(snapshot_of(name).configs["config.json"])
    del config["quantization_config"]
    return understand(made(config))


def one_matrix(rows: int, columns: int, workload: Workload) -> int:
    """Bytes of all tensors that come of one weight in 16 bit."""
    conversion = conversion_of(workload)
    assert conversion is not None
    weight = Matrix(name="weight", kind="linear", rows=rows, columns=columns)
    return sum(bytes_of(formula, weight, conversion, 2) for formula in conversion.parts.values())


def test_int8_is_what_a_repository_of_int8_weights_holds() -> None:
    """Llama-3.1-8B saved after load_in_8bit, the rest in float32: every byte of its header but the 224 one-byte format marks."""
    stored = weights(facts_of("llama-3.1-8b-bnb-int8"), Workload())
    ours = weights(facts_of("llama-3.1-8b"), Workload(quant="int8", dtype="fp32"))
    assert ours.bytes == stored.bytes == 11_188_584_448
    assert ours.exactness == "exact"


def test_mxfp4_is_what_gpt_oss_holds() -> None:
    """gpt-oss-20b as its config describes it, quantized: the bytes of openai/gpt-oss-20b's header."""
    assert weights(plain("gpt-oss-20b"), Workload(quant="mxfp4", dtype="bf16")).bytes == 13_761_264_768
    assert weights(facts_of("gpt-oss-20b"), Workload()).bytes == 13_761_264_768


def test_gptq_is_what_a_gptq_repository_holds() -> None:
    """Llama-3.1-8B in 4 bit, groups of 128, fp16: the header of such a repository, but for the biases of zeros (one a row) that it holds too."""
    stored = facts_of("llama-3.1-8b-instruct-gptq-w4a16").stored_bytes
    ours = weights(facts_of("llama-3.1-8b"), Workload(quant="gptq", dtype="fp16"))
    assert stored == 5_735_587_840
    assert ours.bytes == stored - 2 * 1_376_256


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Workload(quant="nf4"), 451_648),
        (Workload(quant="nf4", bnb_4bit_use_double_quant=True), 415_240),
        (Workload(quant="int8"), 806_400),
        (Workload(quant="fp4", bnb_4bit_quant_storage="bfloat16"), 451_648),
        (Workload(quant="nf4", quant_group_size=128), 896 * 896 // 2 + 4 * 6272 + 64),
    ],
)
def test_one_square_matrix(workload: Workload, expected: int) -> None:
    """896 × 896 as bitsandbytes holds it: measured on real modules."""
    assert one_matrix(896, 896, workload) == expected


@given(rows=st.integers(1, 400), columns=st.integers(1, 400), double=st.booleans())
def test_four_bit_blocks_are_rounded_up(rows: int, columns: int, double: bool) -> None:
    """Half a byte a weight and one scale a block, each rounded up: an odd last weight takes a byte of its own and never two."""
    size = rows * columns
    made_of = one_matrix(rows, columns, Workload(quant="nf4", bnb_4bit_use_double_quant=double))
    halves, blocks = (size + 1) // 2, (size + 63) // 64
    assert made_of == halves + (blocks + 4 * ((blocks + 255) // 256) + 64 + 1024 + 4 if double else 4 * blocks + 64)


def test_fused_experts_stay_as_they_are() -> None:
    """A 4-bit Mixtral-8x7B keeps its 45 billion expert weights in 16 bit: nine tenths of the model, not a quarter; FP8 takes them too."""
    facts = facts_of("mixtral-8x7b-v0.1")
    whole = weights(facts, Workload()).bytes
    assert weights(facts, Workload(quant="nf4")).bytes > whole * 9 // 10
    assert weights(facts, Workload(quant="fp8")).bytes < whole * 51 // 100


def test_a_matrix_that_is_no_multiple_of_a_block_stays_as_it_is_under_fp8() -> None:
    """128 divides neither DeepSeek-V2-Lite's 576 outputs of kv_a_proj_with_mqa nor the 10,944 of its dense layer: they stay in 16 bit."""
    facts = facts_of("deepseek-v2-lite")
    inputs = weights(facts, Workload(quant="fp8")).inputs
    kept = weights(facts, Workload(quant="int8")).inputs
    experts, odd = 26 * 64 * 3 * 2048 * 1408, 27 * 576 * 2048 + 3 * 10944 * 2048
    assert inputs["weight_bytes"] == kept["weight_bytes"] - odd + experts


def test_what_was_chosen_for_one_method_is_not_for_the_others() -> None:
    """Variants beside a double-quantized model: the 4-bit one is the same, the others have no such option."""
    workload = Workload(quant="nf4", bnb_4bit_use_double_quant=True)
    facts = facts_of("qwen3-0.6b")
    rows = {row.quant: row.weights_bytes for row in variants(facts, workload)}
    assert rows["nf4"] == weights(facts, workload).bytes < weights(facts, Workload(quant="nf4")).bytes
    assert rows["int8"] == weights(facts, Workload(quant="int8")).bytes


@pytest.mark.parametrize(
    ("quant", "bits"), [("nf4", 16), ("fp4", 16), ("int8", 16 + 16), ("fp8", 16), ("gptq", None), ("awq", None)]
)
def test_what_lies_beside_the_weights_while_they_are_quantized(quant: str, bits: int | None) -> None:
    """The largest matrix in the load dtype, 896 × 4,864 of Qwen2-0.5B, with a copy in fp16 under LLM.int8(); GPTQ and AWQ are made beforehand."""
    facts, workload = facts_of("qwen2-0.5b-instruct"), Workload(quant=quant)
    conversion, setting = conversion_of(workload), settle(facts, workload)
    assert conversion is not None
    made = loading_temporaries(setting, split(facts, conversion, setting.dtype))
    assert (None if made is None else made.bytes) == (None if bits is None else 896 * 4864 * bits // 8)


@pytest.mark.parametrize("quant", spellings())
def test_every_method_makes_a_dense_model_smaller(quant: str) -> None:
    """Each row of the table gives a figure below the 16-bit one, or says which models it is for."""
    facts = facts_of("llama-3.1-8b")
    if quant == "mxfp4":
        with pytest.raises(UsageError, match="GptOss"):
            weights(facts, Workload(quant=quant))
    else:
        assert weights(facts, Workload(quant=quant)).bytes < weights(facts, Workload()).bytes


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Workload(quant="int3"), "unknown quantization"),
        (Workload(quant="int8", bnb_4bit_use_double_quant=True), "nf4 and fp4"),
        (Workload(bnb_4bit_quant_storage="uint8"), "nf4 and fp4"),
        (Workload(quant="nf4", bnb_4bit_quant_storage="int4"), "no quant storage"),
        (Workload(quant="nf4", bnb_4bit_compute_dtype="int8"), "no compute dtype"),
        (Workload(quant="nf4", quant_group_size=48), "no group size 48"),
        (Workload(quant="int8", quant_group_size=64), "no group size 64"),
        (Workload(quant_group_size=64), "while loading"),
        (Workload(quant="int8", llm_int8_skip_modules=("(",)), "no regular expression"),
        (Workload(quant="int8", llm_int8_threshold=-1.0), "threshold"),
    ],
)
def test_what_does_not_exist_is_refused(workload: Workload, words: str) -> None:
    """Options that a method lacks are a usage error in one line."""
    with pytest.raises(UsageError, match=words):
        estimate(facts_of("qwen2-0.5b-instruct"), workload)


@pytest.mark.parametrize("architecture", ["IBertForMaskedLM", "SomebodysForMaskedLM"])
def test_names_that_hide_what_the_layers_are(architecture: str) -> None:
    """I-BERT's layers are of a class of its own, which bitsandbytes leaves alone, and only its head's first layer is converted; of a class that nobody compared the names tell."""
    layer = "ibert.encoder.layer.0.attention.self.query.weight"
    tensors = {
        layer: ("F32", (64, 64)),
        "lm_head.dense.weight": ("F32", (64, 64)),
        "ibert.embeddings.word_embeddings.weight": ("F32", (10, 64)),
    }
    facts = understand(
        made({"model_type": "ibert", "architectures": [architecture], "torch_dtype": "float32"}, tensors)
    )
    (weights,) = (part for part in estimate(facts, Workload(quant="int8")).components if part.id == "weights")
    # An int8 module: a byte a weight, and four for each row's scale. Both classes convert one module of 64 x 64, but not the same.
    assert weights.bytes == 64 * 64 + 4 * 64 + 4 * (64 * 64 + 640)
    conversion = conversion_of(Workload(quant="int8"))
    assert conversion is not None
    found = split(facts, conversion, "F32")
    assert found is not None
    is_compared = architecture == "IBertForMaskedLM"
    assert [matrix.name for matrix in found.converted] == [
        "lm_head.dense.weight" if is_compared else layer.replace(".0.", ".*.")
    ]
    assert (weights.high_bytes * 100 // weights.bytes - 100 <= 9) == is_compared


@pytest.mark.parametrize("quant", ["nf4", "fp4", "int8"])
def test_models_whose_code_does_not_run_on_such_weights_say_so(quant: str) -> None:
    """Tried with bitsandbytes 0.50.2 on the CPU: Mamba fails in its first layer, Mamba-2 runs, and Mamba too where dt_proj and the head are left out."""
    config = {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "hidden_size": 128,
        "vocab_size": 1024,
        "num_hidden_layers": 2,
    }
    facts, asked = understand(made(config)), Workload(quant=quant, prompt_tokens=8)
    assert any("does not run" in words for words in settle(facts, asked).assumptions)
    skipped = Workload(quant=quant, prompt_tokens=8, llm_int8_skip_modules=("dt_proj", "lm_head"))
    for other, workload in ((facts, skipped), (facts_of("llama-3.1-8b"), asked)):
        assert not any("does not run" in words for words in settle(other, workload).assumptions)
