"""Inference estimates: worked figures, laws, and formulas that give their own numbers again."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fixture_models import NAMES, facts_of, made
from hypothesis import given
from hypothesis import strategies as st
from packed_checkpoints import int_packed, snapshot
from shapes import SHAPES

from hubaudit.auditing import audit
from hubaudit.errors import UsageError
from hubaudit.estimate.component import given as input_of
from hubaudit.estimate.infer import estimate, variants
from hubaudit.estimate.layer_moments import origin
from hubaudit.estimate.weights import weights_as_stored
from hubaudit.facts.model import understand
from hubaudit.types import Component, Estimate, ModelFacts, TensorInfo, Workload
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

QWEN = "qwen2-0.5b-instruct"
GIB = 2**30


def part(made_of: Estimate, name: str) -> Component:
    """The component of that id."""
    return next(item for item in made_of.components if item.id == name)


def dense(parameters: int) -> ModelFacts:
    """A model of so many parameters in one matrix, of which nothing else is known."""
    return understand(made(None, {"layers.0.mlp.up_proj.weight": ("BF16", (1, parameters))}))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["infer", "kv"])
@pytest.mark.parametrize("quant", [None, "int8", "nf4"])
def test_every_component_follows_from_its_formula(name: str, mode: str, quant: str | None) -> None:
    """bytes, low and high agree with the formula over the inputs, evaluated here by Python itself, and every input has its source."""
    facts = facts_of(name)
    if quant and facts.quantization:
        pytest.skip("already quantized")
    for attention in ("sdpa", "eager"):
        made_of = estimate(facts, Workload(mode=mode, quant=quant, attention=attention, batch_size=3))  # type: ignore[arg-type]
        for item in made_of.components:
            functions = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
            assert eval(item.formula, {"__builtins__": {}}, {**functions, **item.inputs}) == item.bytes  # noqa: S307
            assert item.low_bytes <= item.bytes <= item.high_bytes
            assert item.exactness != "exact" or item.low_bytes == item.high_bytes
            named = {source.partition(":")[0] for source in item.sources}
            assert named == {*item.inputs, "formula"}
            assert set(re.findall(r"[a-z_A-Z]\w*", item.formula)) - {"min", "max", "ceil_div"} == set(item.inputs)
        assert made_of.total_bytes == sum(item.bytes for item in made_of.components)


def test_qwen2_weights_and_cache_are_the_published_ones() -> None:
    """988,065,536 bytes in bf16 (494,032,768 × 2; huggingface.co/Qwen/Qwen2-0.5B-Instruct), 12,288 bytes of KV cache a token (vLLM logs)."""
    workload = Workload(batch_size=4, prompt_tokens=1000, new_tokens=24)
    assert part(estimate(facts_of(QWEN), workload), "weights").bytes == 988_065_536
    made_of = estimate(facts_of(QWEN), replace(workload, mode="kv"))
    assert part(made_of, "kv_cache").bytes == 12_288 * 4 * 1024
    assert part(made_of, "kv_cache").exactness == "exact"


def test_seven_billion_parameters_by_plain_bits() -> None:
    """7,000,559,616 parameters: 26.08 GiB fp32, 13.04 fp16 and bf16, 6.52 int8, 3.26 int4, as the starting documents state."""
    rows = {row.quant or row.dtype: row for row in variants(dense(7_000_559_616), Workload())}
    assert format_bytes(rows["fp32"].plain_bytes) == "26.08 GiB"
    assert format_bytes(rows["fp16"].plain_bytes) == "13.04 GiB"
    assert format_bytes(rows["bf16"].plain_bytes) == "13.04 GiB"
    assert format_bytes(rows["int8"].plain_bytes) == "6.52 GiB"
    assert format_bytes(rows["nf4"].plain_bytes) == "3.26 GiB"


@pytest.mark.parametrize("name", NAMES)
def test_bitsandbytes_is_never_as_small_as_plain_bits(name: str) -> None:
    """Kept modules and scales make int8 and 4 bit larger than bits × parameters, and the report says why."""
    for row in variants(facts_of(name), Workload()):
        if row.quant:
            assert row.weights_bytes > row.plain_bytes
            assert row.note is not None
            assert "embeddings" in row.note


def test_multi_head_cache_is_the_textbook_one() -> None:
    """For plain multi-head attention in 16 bit the cache is 4·b·l·h·(s+n) bytes."""
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008, "max_position_embeddings": 4096, "torch_dtype": "float16",
    }  # fmt: skip
    made_of = estimate(understand(made(config)), Workload(mode="kv", batch_size=2, prompt_tokens=512, new_tokens=32))
    assert made_of.total_bytes == 4 * 2 * 32 * 4096 * (512 + 32)


def test_multi_query_cache_counts_one_head() -> None:
    """Falcon-7B keeps one key and value head of 64: 2 · 32 · 64 · 2 = 8,192 bytes a token (its config: multi_query, 71 heads, hidden 4544)."""
    config = {
        "model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "multi_query": True, "new_decoder_architecture": False, "vocab_size": 65024, "torch_dtype": "bfloat16", "alibi": False,
    }  # fmt: skip
    made_of = estimate(understand(made(config)), Workload(mode="kv", prompt_tokens=1, new_tokens=0))
    assert made_of.total_bytes == 8192


def test_an_encoder_keeps_no_cache() -> None:
    """BERT without a head has neither a KV cache nor logits."""
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512,
    }  # fmt: skip
    made_of = estimate(understand(made(config)), Workload())
    assert {item.id for item in made_of.components} == {
        "weights",
        "block_remainders",
        "activations",
        "workspace",
        "cuda_context",
    }


@given(
    name=st.sampled_from(NAMES),
    batch=st.integers(1, 64),
    more=st.integers(1, 64),
    tokens=st.integers(1, 5000),
    attention=st.sampled_from(["sdpa", "eager"]),
)
def test_more_never_costs_less(name: str, batch: int, more: int, tokens: int, attention: str) -> None:
    """Totals and both ends of the band grow with the batch and with the prompt."""
    base = Workload(batch_size=batch, prompt_tokens=tokens, new_tokens=7, attention=attention)
    larger = Workload(batch_size=batch + more, prompt_tokens=tokens, new_tokens=7, attention=attention)
    longer = Workload(batch_size=batch, prompt_tokens=tokens + more, new_tokens=7, attention=attention)
    small, wide, long = (estimate(facts_of(name), workload) for workload in (base, larger, longer))
    for other in (wide, long):
        assert other.total_bytes >= small.total_bytes
        assert other.low_bytes >= small.low_bytes
        assert other.high_bytes >= small.high_bytes


@given(
    name=st.sampled_from(NAMES),
    batch=st.integers(1, 100),
    kv_dtype=st.sampled_from(["auto", "bf16", "fp32"]),
)
def test_the_cache_is_linear_in_the_batch(name: str, batch: int, kv_dtype: str) -> None:
    """A batch of n keeps n times what one sequence keeps."""
    one, many = (
        estimate(
            facts_of(name), Workload(mode="kv", batch_size=size, kv_dtype=kv_dtype, prompt_tokens=4096, new_tokens=128)
        ).total_bytes
        for size in (1, batch)
    )
    assert many == batch * one


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Workload(dtype="int3"), "cannot compute in dtype"),
        (Workload(kv_dtype="nothing"), "unknown KV cache dtype"),
        (Workload(quant="int2"), "unknown quantization"),
        (Workload(batch_size=0), "at least 1"),
    ],
)
def test_nonsense_is_a_usage_error(workload: Workload, words: str) -> None:
    """What does not exist is refused in one line."""
    with pytest.raises(UsageError, match=words):
        estimate(facts_of(QWEN), workload)


def test_a_part_that_is_unknown_is_left_out_and_named() -> None:
    """Weights never vanish because the cache is unknown."""
    made_of = estimate(dense(1000), Workload())
    assert part(made_of, "weights").bytes == 2000
    assert {item.id for item in made_of.omitted} == {"kv_cache", "activations", "logits"}
    assert all(item.reason for item in made_of.omitted)


@pytest.mark.parametrize(("dtype", "expected"), [(None, 2 * 88 + 4 * (416 + 288)), ("float16", 2 * (88 + 416 + 288))])
def test_weights_of_a_pipeline(tmp_path: Path, dtype: str | None, expected: int) -> None:
    """The library diffusers loads its own parts in float32 and a text encoder as its config says, or all in the dtype that is asked for: by count of elements."""
    for path, content in SHAPES["pipeline"].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    weights = [
        part
        for part in audit(str(tmp_path), workload=Workload(dtype=dtype)).estimate.components
        if part.id == "weights"
    ]
    assert [part.bytes for part in weights] == [expected]


def test_what_unpacked_weights_become_is_said() -> None:
    """One matrix of 1,024 × 2,048 in 4 bit with a scale of 16 bit for 128 values, and the shape's 16 bytes: from there to 16 bit a value; unknown where a packing is."""
    weights = {"num_bits": 4, "type": "int", "group_size": 128}
    scheme = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}  # fmt: skip
    config = {"model_type": "llama", "dtype": "bfloat16", "quantization_config": scheme}
    facts = understand(snapshot(int_packed(4, 128)("model.layers.0.mlp.up_proj", 1024, 2048), config))
    values, beside = 1024 * 2048, 2 * 1024 * 2048 // 128 + 16
    packed, unpacked = format_bytes(values // 2 + beside), format_bytes(2 * values + beside)
    assert f": {packed} become {unpacked}; " in " ".join(estimate(facts, Workload()).assumptions)
    lost = tuple(replace(group, parameters=None) for group in facts.tensor_groups)
    said = " ".join(estimate(replace(facts, tensor_groups=lost), Workload()).assumptions)
    assert "become an unknown size; " in said


def test_packed_weights_of_which_none_is_loaded() -> None:
    """A file of nothing that the model builds has no weights, which is another thing than weights of no bytes."""
    facts = facts_of("llama-3.1-8b-instruct-gptq-w4a16")
    unbuilt = tuple(replace(group, extra="mtp") for group in facts.tensor_groups)
    assert weights_as_stored(facts, "F16", input_of(16, "test")) is not None
    assert weights_as_stored(replace(facts, tensor_groups=unbuilt), "F16", input_of(16, "test")) is None


def test_packed_weights_without_bytes_are_not_called_nothing() -> None:
    """An empty tensor, as the fuzzer made one, of which nobody knows what it stands for: no weights of no bytes, but a reason."""
    config = {"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    empty = TensorInfo("model.layers.0.mlp.gate_proj.qweight", "I32", (0, 0), 0)
    scalar = TensorInfo("model.norm.weight", "F32", (), 4)
    for tensors in ((empty,), (empty, scalar)):
        made = estimate(understand(snapshot(tensors, config)), Workload())
        assert "weights" not in {part.id for part in made.components}
        assert next(gap.reason for gap in made.omitted if gap.id == "weights")


def test_blocks_that_were_not_traced_have_a_wide_band() -> None:
    """With experts or without: a type that has no trace is not within the few percent of those that have."""
    for name in ("qwen2-0.5b-instruct", "mixtral-8x7b-v0.1"):
        facts = facts_of(name)
        traced, unheard = origin(facts), origin(replace(facts, model_type="unheard_of"))
        assert traced[0] != unheard[0]
        assert max(traced[1]) < min(unheard[1])


def test_modules_kept_in_float32_that_no_tensor_names() -> None:
    """What a class keeps in float32 may be called otherwise in the files; where nothing bears its name, the figure is not called exact."""
    facts = facts_of(
        "t5-small"
    )  # T5 keeps every `wo` in float32 under float16 (`_keep_in_fp32_modules`, transformers 5.23.0)
    asked = Workload(dtype="fp16", new_tokens=0)
    (found,) = (part for part in estimate(facts, asked).components if part.id == "weights")
    assert found.exactness == "exact"
    renamed = tuple(replace(group, pattern=group.pattern.replace("wo", "out")) for group in facts.tensor_groups)
    (unseen,) = (
        part for part in estimate(replace(facts, tensor_groups=renamed), asked).components if part.id == "weights"
    )
    assert unseen.exactness == "formula"
    assert any("no tensor is called wo" in source for source in unseen.sources)
    assert unseen.low_bytes == unseen.bytes < unseen.high_bytes


def test_parameters_that_a_class_makes_and_no_file_holds() -> None:
    """Marian makes its tables of positions and does not save them; files of older releases may hold them all the same."""
    facts = replace(facts_of("t5-small"), architecture="MarianMTModel")
    tables = [f"model.{half}.embed_positions.weight" for half in ("encoder", "decoder")]
    stored = tuple(replace(facts.tensor_groups[0], pattern=name) for name in tables)
    for groups, exactness in ((facts.tensor_groups, "formula"), ((*facts.tensor_groups, *stored), "exact")):
        found = estimate(replace(facts, tensor_groups=groups), Workload(new_tokens=0))
        (weights,) = (part for part in found.components if part.id == "weights")
        assert weights.exactness == exactness
        assert any(tables[0] in source for source in weights.sources) == (exactness == "formula")


@pytest.mark.parametrize("quant", [None, "int8"])
def test_tables_of_positions_that_no_file_holds_are_counted(quant: str | None) -> None:
    """Two tables of 512 × 48 in 16 bit are in Marian's memory beside what its file holds (MarianSinusoidalPositionalEmbedding, transformers 5.23.0)."""
    config = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "d_model": 48,
        "max_position_embeddings": 512,
        "torch_dtype": "bfloat16",
    }
    file = {"model.shared.weight": ("BF16", (60, 48))}
    halves = {f"model.{half}.embed_positions.weight": ("BF16", (512, 48)) for half in ("encoder", "decoder")}
    made_by_class, stored = understand(made(config, file)), understand(made(config, file | halves))
    sizes = []
    for facts in (made_by_class, stored):
        parts = estimate(facts, Workload(quant=quant, new_tokens=0)).components
        (weights,) = (one for one in parts if one.id == "weights")
        sizes.append(weights.bytes)
        assert quant or weights.exactness == "exact"
    assert sizes[0] == sizes[1]
    assert made_by_class.parameters is not None
    assert made_by_class.parameters.total == 60 * 48
    assert not stored.made
