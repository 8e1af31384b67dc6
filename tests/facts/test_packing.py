"""Packed weights are unpacked to the parameters they hold: the Hub's own golden figures, laws, and layouts of real libraries."""

from __future__ import annotations

import json
from functools import cache
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import packed_checkpoints as made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_checkpoints import LLAMA_8B, LLAMA_70B, snapshot, tensor

from hubaudit.facts.model import understand
from hubaudit.facts.packing import unpacker
from hubaudit.facts.packing_layouts import Setting
from hubaudit.facts.quantization import Scheme, scheme_of
from hubaudit.facts.quantizers import methods
from hubaudit.facts.tensors import by_name, pattern_of
from hubaudit.types import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from packed_checkpoints import Linear

    from hubaudit.facts.quantizers import Method
    from hubaudit.types import ModelFacts

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "configs"


def quantized(**section: Any) -> dict[str, Any]:
    """A config.json with this quantization_config."""
    return {"quantization_config": section}


def compressed(
    bits: int, group: int | None, *, form: str = "pack-quantized", kind: str = "int", **more: Any
) -> dict[str, Any]:
    """A quantization_config of compressed-tensors with one group for all linear layers."""
    strategy = "channel" if group is None else "group"
    weights = {"num_bits": bits, "group_size": group, "strategy": strategy, "type": kind, "symmetric": True}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": groups,
        "ignore": ["lm_head"],
        **more,
    }


def facts_of(
    tensors: Iterable[TensorInfo], config: dict[str, Any], metadata: dict[str, Any] | None = None
) -> ModelFacts:
    """What hubaudit makes of a repository with these tensors."""
    return understand(snapshot(tensors, config, metadata))


FP8_V4 = {
    "model_type": "deepseek_v4",
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "expert_dtype": "fp4",
    **quantized(quant_method="fp8", fmt="e4m3", scale_fmt="ue8m0", weight_block_size=[128, 128]),
}

#: repository, tensors, config, and the counts by dtype that the Hub's code must give for it (packed_checkpoints.SPEC).
GOLDEN: list[tuple[str, Callable[[], Iterable[TensorInfo]], dict[str, Any], dict[str, int]]] = [
    (
        "openai/gpt-oss-20b",
        lambda: made.gpt_oss(layers=24, experts=32),
        quantized(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"]),
        {"BF16": 1_804_459_584, "U8": 19_110_297_600},
    ),
    (
        "openai/gpt-oss-120b",
        lambda: made.gpt_oss(layers=36, experts=128),
        quantized(quant_method="mxfp4"),
        {"BF16": 2_167_371_072, "U8": 114_661_785_600},
    ),
    (
        "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit",
        lambda: made.llama(made.nf4, **LLAMA_8B, dtype="BF16"),
        quantized(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_use_double_quant=True),
        {"BF16": 1_050_939_392, "U8": 6_979_321_856},
    ),
    (
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
        lambda: made.llama(made.gptq(4, 128, bias=True), **LLAMA_8B, dtype="F16"),
        quantized(quant_method="gptq", bits=4, group_size=128, desc_act=True),
        {"I32": 6_979_321_856, "F16": 1_052_315_648},
    ),
    (
        "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
        lambda: made.llama(made.int_packed(4, 128, g_idx=True), **LLAMA_70B, dtype="BF16"),
        {"quantization_config": compressed(4, 128)},
        {"I32": 68_451_041_280, "BF16": 2_102_665_216},
    ),
    (
        "moonshotai/Kimi-K2.5",
        made.kimi_k2_5,
        {"text_config": {"quantization_config": compressed(4, 32)}},
        {"F32": 23_040, "I32": 1_014_686_023_680, "BF16": 12_193_329_648},
    ),
    (
        "moonshotai/Kimi-K3",
        made.kimi_k3,
        {"text_config": {"quantization_config": compressed(4, 32, form="mxfp4-pack-quantized", kind="float")}},
        {"F32": 11_122_432, "BF16": 57_179_884_544, "U8": 2_722_740_830_208},
    ),
    (
        "deepseek-ai/DeepSeek-V4-Pro",
        made.deepseek_v4_pro,
        FP8_V4,
        {
            "BF16": 2_816_899_328,
            "I64": 2_327_040,
            "F32": 87_776_414,
            "F8_E4M3": 23_169_335_296,
            "I8": 1_572_763_336_704,
        },
    ),
]


@cache
def golden(repo: str) -> ModelFacts:
    """What hubaudit makes of a repository of the list."""
    _, tensors, config, _ = next(row for row in GOLDEN if row[0] == repo)
    return facts_of(tensors(), config)


@pytest.mark.parametrize(("repo", "by_dtype"), [(row[0], row[3]) for row in GOLDEN], ids=[row[0] for row in GOLDEN])
def test_counts_are_the_hubs_own(repo: str, by_dtype: dict[str, int]) -> None:
    """By dtype and in all, the count is the one that huggingface.js's tests expect of the real repository (packed_checkpoints.SPEC)."""
    facts = golden(repo)
    assert facts.parameters is not None, facts.parameters_reason
    assert dict(facts.parameters.by_dtype) == by_dtype
    assert facts.parameters.total == sum(by_dtype.values())


@pytest.mark.parametrize(
    ("repo", "scales"),
    [
        ("openai/gpt-oss-20b", 597_196_800),
        ("openai/gpt-oss-120b", 3_583_180_800),
        ("deepseek-ai/DeepSeek-V4-Pro", 49_150_268_416),
    ],
)
def test_scales_are_counted_apart(repo: str, scales: int) -> None:
    """The scales that huggingface.js's tests name as left out are what hubaudit reports beside the parameters (packed_checkpoints.SPEC)."""
    quantization = golden(repo).quantization
    assert quantization is not None
    assert quantization.scale_elements == scales


def test_deepseek_v4_names_its_extra_block() -> None:
    """The multi-token-prediction block is counted, named and not loaded: transformers ignores `mtp.*` of deepseek_v4."""
    facts = golden("deepseek-ai/DeepSeek-V4-Pro")
    assert facts.parameters is not None
    # 1,572,999,528,803 is what transformers 5.23.0 builds on the meta device (parameters and the routing tables among its buffers).
    assert facts.parameters.loaded == 1_572_999_528_803
    assert facts.parameters.extra == {"mtp": 1_598_839_674_782 - 1_572_999_528_803}


def test_kimi_k3_has_as_many_tensors_as_its_index() -> None:
    """497,220 tensors, as the real index has at the revision of the golden count (github.com/ggml-org/llama.cpp/pull/26185 converts them)."""
    assert sum(group.count for group in golden("moonshotai/Kimi-K3").tensor_groups) == 497_220


# --- every format, by law ------------------------------------------------------------------------------------------------------

SIZES = st.integers(1, 24).map(lambda n: n * 256)
BIT_WIDTHS = st.sampled_from((2, 3, 4, 8))
#: How each format stores a linear layer, and the config that says so, for given bits and group size.
FORMATS: dict[str, Callable[[int, int], tuple[Linear, dict[str, Any]]]] = {
    "gptq": lambda bits, group: (made.gptq(bits, group), quantized(quant_method="gptq", bits=bits, group_size=group)),
    "gptq, one scale a row": lambda bits, group: (
        made.gptq(bits, -1),
        quantized(quant_method="gptq", bits=bits, group_size=-1),
    ),
    "gptq, unnamed": lambda bits, group: (made.gptq(bits, group), {}),
    "awq": lambda bits, group: (made.awq(bits, group), quantized(quant_method="awq", bits=bits, group_size=group)),
    "compressed-tensors": lambda bits, group: (
        made.int_packed(bits, group),
        {"quantization_config": compressed(bits, group)},
    ),
    "compressed-tensors, one scale a row": lambda bits, group: (
        made.int_packed(bits, -1),
        {"quantization_config": compressed(bits, None)},
    ),
    "compressed-tensors nvfp4": lambda bits, group: (
        made.nvfp4_packed,
        {"quantization_config": compressed(4, 16, form="nvfp4-pack-quantized", kind="float")},
    ),
    "compressed-tensors mxfp4": lambda bits, group: (
        made.mxfp4_packed,
        {"quantization_config": compressed(4, 32, form="mxfp4-pack-quantized", kind="float")},
    ),
    "modelopt nvfp4": lambda bits, group: (made.modelopt_nvfp4, quantized(quant_method="modelopt", quant_algo="NVFP4")),
    "bitsandbytes": lambda bits, group: (made.nf4, quantized(quant_method="bitsandbytes", load_in_4bit=True)),
    "bitsandbytes, unnamed": lambda bits, group: (made.nf4, {}),
    "mlx": lambda bits, group: (made.mlx(bits, group), {"quantization": {"bits": bits, "group_size": group}}),
    "mlx mxfp4": lambda bits, group: (
        made.mlx(4, 32, "mxfp4"),
        {"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}},
    ),
}


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=20, deadline=None)
@given(outputs=SIZES, inputs=SIZES, bits=BIT_WIDTHS, group=st.sampled_from((32, 64, 128)))
def test_unpacking_gives_back_what_was_packed(form: str, outputs: int, inputs: int, bits: int, group: int) -> None:
    """A weight of any size, packed by any format, counts outputs × inputs parameters, and its bytes are those of the file."""
    linear, config = FORMATS[form](bits, group)
    tensors = [*linear("model.layers.0.mlp.up_proj", outputs, inputs), tensor("model.norm.weight", "BF16", inputs)]
    facts = facts_of(tensors, config)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == outputs * inputs + inputs
    assert facts.stored_bytes == sum(stored.stored_bytes for stored in tensors)
    assert facts.quantization is not None
    assert facts.quantization.stored_elements == sum(prod(stored.shape) for stored in tensors)


@pytest.mark.parametrize("form", [form for form in FORMATS if not form.startswith("bitsandbytes")])
def test_the_weights_own_shape_comes_back(form: str) -> None:
    """All formats but the flat one of bitsandbytes tell the weight's shape: [outputs, inputs], or AWQ's and GPTQ's transposed one."""
    linear, config = FORMATS[form](4, 64)
    facts = facts_of(linear("model.layers.0.mlp.up_proj", 512, 1024), config)
    weight = next(group for group in facts.tensor_groups if group.bits is not None)
    assert weight.logical_shape in ((512, 1024), (1024, 512))
    assert weight.bits == 4
    assert all(group.kind == "scale" for group in facts.tensor_groups if group is not weight)


@settings(max_examples=40, deadline=None)
@given(outputs=st.integers(1, 400), inputs=st.integers(1, 400))
def test_an_nf4_weight_of_odd_size_counts_at_most_one_more(outputs: int, inputs: int) -> None:
    """Two values share a byte, so the file cannot tell 2n − 1 values from 2n; everything else is exact."""
    facts = facts_of(made.nf4("up_proj", outputs, inputs), quantized(quant_method="bitsandbytes", load_in_4bit=True))
    assert facts.parameters is not None
    assert facts.parameters.total - outputs * inputs == outputs * inputs % 2


def hqq(bits: int, group: int) -> Linear:
    """HQQ with groups as rows (axis 1): W_q packed along the groups, scale and zero one for each, settings as tensors."""
    each, dtype = (10, "I32") if bits == 3 else (8 // bits, "U8")

    def linear(name: str, outputs: int, inputs: int) -> Iterable[TensorInfo]:
        groups = outputs * inputs // group
        yield tensor(f"{name}.W_q", dtype, ceil(groups / each), group)
        yield tensor(f"{name}.scale", "F16", groups, 1)
        yield tensor(f"{name}.zero", "F16", groups, 1)
        yield tensor(f"{name}.shape", "I64", 2)
        yield tensor(f"{name}.nbits", "I32")
        yield tensor(f"{name}.packing", "U8", 7)

    return linear  # type: ignore[return-value]


@settings(max_examples=40, deadline=None)
@given(outputs=SIZES, inputs=SIZES, bits=st.sampled_from((1, 2, 3, 4, 8)))
def test_hqq(outputs: int, inputs: int, bits: int) -> None:
    """HQQ's groups and their size give the weight, three bits in ten values of an int32 included (hqq e0b1d00e, core/quantize.py, bitpack.py)."""
    params = {"nbits": bits, "group_size": 64, "axis": 1, "view_as_float": False}
    config = quantized(quant_method="hqq", quant_config={"weight_quant_params": params})
    facts = facts_of(hqq(bits, 64)("mlp.up_proj", outputs, inputs), config)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == outputs * inputs


def test_quanto() -> None:
    """Quanto's int4 packs groups along the rows, its int8 keeps them (optimum-quanto e33f8202, tensor/packed.py, grouped.py)."""
    groups = 512 * 1024 // 128
    tensors = [
        tensor("mlp.up_proj.weight._data._data", "U8", groups // 2, 128),
        tensor("mlp.up_proj.weight._scale", "F32", groups, 1),
        tensor("mlp.up_proj.weight._shift", "F32", groups, 1),
        tensor("mlp.up_proj.input_scale", "F32"),
        tensor("mlp.up_proj.output_scale", "F32"),
        tensor("mlp.down_proj.weight._data", "I8", 1024, 512),
        tensor("mlp.down_proj.weight._scale", "F32", 1024, 1),
    ]
    facts = facts_of(tensors, quantized(quant_method="quanto", weights="int4"))
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 2 * 512 * 1024


def test_aqlm() -> None:
    """AQLM's codes stand for tiles of its codebooks: 1×16 bits for 8 inputs (AQLM e79a896e, QuantizedLinear)."""
    tensors = [
        tensor("mlp.up_proj.codes", "I16", 512, 1024 // 8, 1),
        tensor("mlp.up_proj.codebooks", "F16", 1, 65536, 1, 8),
        tensor("mlp.up_proj.scales", "F16", 512, 1, 1, 1),
    ]
    facts = facts_of(tensors, quantized(quant_method="aqlm", in_group_size=8, nbits_per_codebook=16, num_codebooks=1))
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 512 * 1024
    assert facts.quantization is not None
    assert facts.quantization.bits == 2


def test_torchao_by_its_header() -> None:
    """What torchao's tensors are, the safetensors header says (ao 36027d82, prototype/safetensors/safetensors_support.py)."""
    tensors = [
        tensor("mlp.up_proj._weight_qdata", "I8", 512, 512),
        tensor("mlp.up_proj._weight_scale", "BF16", 1024 // 128, 512),
        tensor("mlp.up_proj._weight_zero_point", "BF16", 1024 // 128, 512),
        tensor("mlp.down_proj._weight_qdata", "F8_E4M3", 1024, 512),
        tensor("mlp.down_proj._weight_scale", "F32", 1024, 1),
    ]
    data = {"block_size": [1, 128], "shape": [512, 1024]}
    metadata = {
        "mlp.up_proj.weight": json.dumps(
            {"_type": "Int4Tensor", "_data": data, "_tensor_data_names": ["qdata", "scale", "zero_point"]}
        ),
        "mlp.down_proj.weight": json.dumps(
            {"_type": "Float8Tensor", "_data": {}, "_tensor_data_names": ["qdata", "scale"]}
        ),
        "tensor_names": json.dumps(["mlp.up_proj.weight", "mlp.down_proj.weight"]),
    }
    config = quantized(quant_method="torchao", quant_type={"default": {"_type": "Int4WeightOnlyConfig"}})
    facts = facts_of(tensors, config, metadata)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 2 * 512 * 1024
    assert facts_of(tensors, config).parameters is None, "the bytes alone do not tell int4 from int8"


def test_modelopt_int4_awq() -> None:
    """W4A16_AWQ packs pairs of outputs into bytes, its scales are floats (Model-Optimizer a2fbac7b, pack_int4_in_uint8)."""
    tensors = [
        tensor("mlp.up_proj.weight", "U8", 256, 1024),
        tensor("mlp.up_proj.weight_scale", "BF16", 512, 1024 // 128),
        tensor("mlp.up_proj.pre_quant_scale", "BF16", 1024),
    ]
    configs = {
        "config.json": {},
        "hf_quant_config.json": {
            "producer": {"name": "modelopt"},
            "quantization": {"quant_algo": "W4A16_AWQ", "group_size": 128},
        },
    }
    facts = facts_of(tensors, configs)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 512 * 1024
    assert facts.quantization is not None
    assert facts.quantization.where == "hf_quant_config.json#quantization"


# --- mixed widths ------------------------------------------------------------------------------------------------------------------


def test_mlx_widths_of_single_modules() -> None:
    """A width named for one module holds for it alone, beside the common one."""
    config = {
        "quantization": {
            "bits": 4,
            "group_size": 32,
            "lm_head": {"bits": 8, "group_size": 64, "mode": "affine"},
            "model.skipped": False,
        }
    }
    tensors = [*made.mlx(4, 32)("mlp.up_proj", 512, 1024), *made.mlx(8, 64)("lm_head", 2048, 1024)]
    facts = facts_of(tensors, config)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 512 * 1024 + 2048 * 1024
    assert facts.quantization is not None
    assert facts.quantization.bits is None, "widths differ"


@pytest.mark.parametrize(("bits_of_down", "targets"), [(8, ["re:.*down_proj"]), (3, ["re:.*(down|o)_proj$"])])
def test_compressed_tensors_groups_by_target(bits_of_down: int, targets: list[str]) -> None:
    """Where shapes allow the width of either group, the targets decide: a scale a row tells nothing of the length."""
    groups = {
        "group_0": {"targets": targets, "weights": {"num_bits": bits_of_down, "strategy": "channel", "type": "int"}},
        "group_1": {"targets": ["re:.*up_proj"], "weights": {"num_bits": 4, "strategy": "channel", "type": "int"}},
    }
    config = quantized(quant_method="compressed-tensors", format="pack-quantized", config_groups=groups)
    tensors = [
        *made.int_packed(4, -1)("mlp.up_proj", 512, 1536),
        *made.int_packed(bits_of_down, -1)("mlp.down_proj", 1536, 512),
    ]
    facts = facts_of(tensors, config)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 2 * 512 * 1536


def test_undecided_widths_are_unknown() -> None:
    """Where neither shapes nor targets decide between two widths, there is no count, and the reason names method and tensor."""
    groups = {
        "group_0": {"targets": ["re:(?=odd)"], "weights": {"num_bits": 8, "strategy": "channel", "type": "int"}},
        "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "channel", "type": "int"}},
    }
    config = quantized(quant_method="compressed-tensors", format="pack-quantized", config_groups=groups)
    facts = facts_of(made.int_packed(4, -1)("mlp.up_proj", 512, 1024), config)
    assert facts.parameters is None
    assert facts.parameters_reason is not None
    assert "compressed-tensors" in facts.parameters_reason
    assert "mlp.up_proj.weight_packed" in facts.parameters_reason
    assert facts.stored_bytes == 512 * 128 * 4 + 512 * 2 + 16


# --- what must not be guessed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vptq", "higgs", "spqr", "exl3", "something-new"])
def test_an_unknown_method_gives_no_count_but_bytes(method: str) -> None:
    """A method without a row leaves parameters unknown with its name as the reason; bytes are exact all the same."""
    facts = facts_of([tensor("mlp.up_proj.indices", "I16", 64, 64)], quantized(quant_method=method))
    assert facts.parameters is None
    assert facts.parameters_reason is not None
    assert method in facts.parameters_reason
    assert facts.stored_bytes == 64 * 64 * 2
    assert [group.parameters for group in facts.tensor_groups] == [None]


@pytest.mark.parametrize(
    ("tensors", "config"),
    [
        # A shape that four bits in groups of 128 cannot have made.
        (
            [tensor("up_proj.weight_packed", "I32", 512, 100), tensor("up_proj.weight_scale", "BF16", 512, 8)],
            {"quantization_config": compressed(4, 128)},
        ),
        # Marlin's 2:4 sparse format, which keeps half of the values.
        (
            [
                tensor("up_proj.weight_packed", "I32", 32, 1024),
                tensor("up_proj.scale_packed", "F16", 8, 512),
                tensor("up_proj.meta", "I16", 512, 32),
            ],
            {"quantization_config": compressed(4, 128, form="marlin-24")},
        ),
        # Bytes without scales.
        ([tensor("up_proj.weight", "U8", 512, 512)], quantized(quant_method="modelopt")),
        # A GPTQ weight whose scales belong to another one.
        (
            [tensor("up_proj.qweight", "I32", 128, 512), tensor("up_proj.scales", "F16", 8, 300)],
            quantized(quant_method="gptq", bits=4, group_size=128),
        ),
        # Statistics for other blocks than bitsandbytes has.
        (
            [tensor("up_proj.weight", "U8", 4096, 1), tensor("up_proj.weight.absmax", "F32", 77)],
            quantized(quant_method="bitsandbytes"),
        ),
    ],
    ids=["group size", "2:4 sparse", "no scales", "other scales", "other blocks"],
)
def test_shapes_that_contradict_the_layout_give_no_count(tensors: list[TensorInfo], config: dict[str, Any]) -> None:
    """A wrong number is worse than none."""
    facts = facts_of(tensors, config)
    assert facts.parameters is None
    assert facts.parameters_reason is not None
    assert facts.stored_bytes == sum(stored.stored_bytes for stored in tensors)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("a.qweight", "a.scales", "a.qzeros", "a.g_idx", "a.weight", "a.weight_packed", "a.weight_scale", "a.weight.absmax", "a.W_q", "a.scale", "x_blocks", "x_scales", "a.codes", "a.codebooks", "a._weight_qdata")),
            st.sampled_from(("U8", "I8", "I16", "I32", "U32", "I64", "F16", "F32", "F8_E4M3", "F8_E8M0")),
            st.lists(st.integers(0, 70), max_size=4).map(tuple),
        ),
        min_size=1,
        unique_by=lambda row: row[0],
    ),
    st.sampled_from(("gptq", "awq", "compressed-tensors", "bitsandbytes", "fp8", "modelopt", "mxfp4", "hqq", "quanto", "aqlm", "torchao", "bitnet", "eetq", "auto-round", "metal")),
    st.recursive(st.none() | st.booleans() | st.integers(-3, 99) | st.text(max_size=3), lambda inner: st.dictionaries(st.sampled_from(("bits", "group_size", "config_groups", "weights", "targets", "quant_config", "a")), inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=8),
)  # fmt: skip
def test_nothing_a_header_or_config_holds_makes_it_raise(
    rows: list[tuple[str, str, tuple[int, ...]]], method: str, noise: Any
) -> None:
    """Whatever stands in a header and in a quantization config, there is an answer, and it is not negative."""
    section = {**(noise if isinstance(noise, dict) else {"config_groups": noise}), "quant_method": method}
    facts = facts_of([tensor(name, dtype, *shape) for name, dtype, shape in rows], {"quantization_config": section})
    assert (facts.parameters is None) is (facts.parameters_reason is not None)
    assert facts.parameters is None or facts.parameters.total >= 0


def test_scales_alone_and_scalars_are_no_parameters() -> None:
    """As on the Hub: exponent-only dtypes and tensors without dimensions count nothing, quantization config or not (packed_checkpoints.SPEC)."""
    facts = facts_of(
        [tensor("up.weight", "F8_E4M3", 64, 64), tensor("up.odd", "F8_E8M0", 2, 2), tensor("logit_scale", "F32")], {}
    )
    assert facts.parameters is not None
    assert facts.parameters.by_dtype == {"F8_E4M3": 64 * 64}


def test_a_learned_scale_is_a_parameter() -> None:
    """`.scales` and `.biases` are quantization's own only beside what they scale."""
    tensors = [*made.gptq(4, 128)("mlp.up_proj", 512, 1024), tensor("model.norm.scales", "BF16", 1024)]
    facts = facts_of(tensors, quantized(quant_method="gptq", bits=4, group_size=128))
    assert facts.parameters is not None
    assert facts.parameters.total == 512 * 1024 + 1024


def test_what_a_runtime_does_not_load_is_named() -> None:
    """The serialized state and the layout code of bitsandbytes are read, and no tensor is kept of them; scales stay."""
    tensors = [
        *made.nf4("mlp.up_proj", 512, 1024),
        tensor("mlp.down_proj.weight", "I8", 512, 1024),
        tensor("mlp.down_proj.SCB", "F32", 512),
        tensor("mlp.down_proj.weight_format", "U8"),
    ]
    facts = facts_of(tensors, quantized(quant_method="bitsandbytes", load_in_4bit=True))
    unbuilt = {group.pattern for group in facts.tensor_groups if group.extra == "quantization state"}
    assert unbuilt == {"mlp.up_proj.weight.quant_state.bitsandbytes__nf4", "mlp.down_proj.weight_format"}


# --- real files --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "shape", "bits", "bias", "total"),
    [
        ("mlx-community__Qwen3-14B-4bit-ish", {"layers": 40, "hidden": 5120, "inner": 17408, "kv_width": 1024, "vocab": 151936}, 4, False, 14_768_307_200),
        ("roshinpv__mpx_qwen2_", {"layers": 48, "hidden": 5120, "inner": 13824, "kv_width": 1024, "vocab": 152064}, 3, True, 14_770_033_664),
    ],
)  # fmt: skip
def test_mlx_of_a_real_index(folder: str, shape: dict[str, int], bits: int, bias: bool, total: int) -> None:
    """Tensors made by MLX's rule have the names and the bytes of the real index, and count the unquantized model's parameters (transformers 5.23.0, meta device)."""
    path = CORPUS / folder / "model.safetensors.index.json"
    if not path.exists():
        pytest.skip("the corpus is not here")
    index = json.loads(path.read_text(encoding="utf-8"))
    config = json.loads(path.with_name("config.json").read_text(encoding="utf-8"))
    tensors = list(_qwen_in_mlx(made.mlx(bits, 64), has_bias=bias, **shape))
    assert {stored.name for stored in tensors} == set(index["weight_map"])
    assert sum(stored.stored_bytes for stored in tensors) == index["metadata"]["total_size"]
    facts = facts_of(tensors, config)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == total


def _qwen_in_mlx(
    linear: Linear, *, layers: int, hidden: int, inner: int, kv_width: int, vocab: int, has_bias: bool
) -> Iterable[TensorInfo]:
    """Qwen2.5 (biases of the projections) or Qwen3 (norms of queries and keys), embedding and head quantized as well."""
    for stored in made.llama(
        linear, layers=layers, hidden=hidden, inner=inner, kv_width=kv_width, vocab=vocab, dtype="BF16"
    ):
        name = stored.name.removesuffix(".weight")
        if name in ("model.embed_tokens", "lm_head"):
            yield from linear(name, vocab, hidden)
        else:
            yield stored
    for layer in range(layers):
        stem = f"model.layers.{layer}.self_attn"
        if has_bias:
            yield tensor(f"{stem}.q_proj.bias", "BF16", hidden)
            yield tensor(f"{stem}.k_proj.bias", "BF16", kv_width)
            yield tensor(f"{stem}.v_proj.bias", "BF16", kv_width)
        else:
            yield tensor(f"{stem}.q_norm.weight", "BF16", 128)
            yield tensor(f"{stem}.k_norm.weight", "BF16", 128)


def test_gptq_of_a_real_file() -> None:
    """GPTQ at 3 bits with one scale a row: the rule's tensors and their header fill the real file but for the metadata its writer left in it."""
    folder = CORPUS / "TheBloke__Genz-70b-GPTQ"
    if not folder.exists():
        pytest.skip("the corpus is not here")
    size = int((folder / "LFS_SIZES.tsv").read_text(encoding="utf-8").splitlines()[1].split("\t")[1])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = list(made.llama(made.gptq(3, -1, bias=True), **LLAMA_70B | {"vocab": 32000}, dtype="F16"))
    stored = sum(tensor.stored_bytes for tensor in tensors)
    assert 0 < size - 8 - len(_header(tensors)) - stored < 500
    facts = facts_of(tensors, config)
    assert facts.parameters is not None, facts.parameters_reason
    # What transformers 5.23.0 builds on the meta device, and AutoGPTQ's biases of all linear layers.
    assert facts.parameters.total == 68_976_648_192 + 80 * (8192 + 1024 + 1024 + 8192 + 28672 + 28672 + 8192)


def _header(tensors: Iterable[TensorInfo]) -> str:
    """The JSON header of a safetensors file without metadata, wide dtypes first, then by name (safetensors 0.8.0, tensor.rs, ``prepare``)."""
    entries, offset = {}, 0
    for stored in sorted(tensors, key=lambda stored: (-made.BITS[stored.dtype], stored.name)):
        entries[stored.name] = {
            "dtype": stored.dtype,
            "shape": list(stored.shape),
            "data_offsets": [offset, offset + stored.stored_bytes],
        }
        offset += stored.stored_bytes
    return json.dumps(entries, separators=(",", ":"))


def test_real_configs_name_known_methods() -> None:
    """Every quantization config of the corpus is understood: its method has a row, and what it names is a width that exists."""
    if not CORPUS.exists():
        pytest.skip("the corpus is not here")
    found = {}
    for folder in sorted(CORPUS.iterdir()):
        names = ("config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json")
        files = [folder / name for name in names if (folder / name).exists()]
        scheme = scheme_of({file.name: json.loads(file.read_text(encoding="utf-8")) for file in files})
        if scheme is not None:
            found[folder.name] = scheme
    assert len(found) >= 30
    assert [name for name, scheme in found.items() if scheme.method is None] == []
    widths = {setting.bits for scheme in found.values() for setting in scheme.settings}
    assert widths <= {None, 2, 3, 4, 8}
    assert found["Arp1tMoga__fast_qwen_Qwen3.5_quantized_"].named_for("lm_head") is None
    assert len(found["Arp1tMoga__fast_qwen_Qwen3.5_quantized_"].by_module) == 74
    assert found["moonshotai__Kimi-K2.5"].where == "config.json#text_config.quantization_config"


# --- the libraries themselves --------------------------------------------------------------------------------------------------------

DTYPES = {
    "torch.uint8": "U8", "torch.int8": "I8", "torch.int16": "I16", "torch.int32": "I32", "torch.uint32": "U32", "torch.int64": "I64",
    "torch.float16": "F16", "torch.bfloat16": "BF16", "torch.float32": "F32", "torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


def of_module(module: Any, name: str = "model.layers.0.mlp.up_proj") -> list[TensorInfo]:
    """What a real module would save."""
    return [
        tensor(f"{name}.{key}", DTYPES[str(value.dtype)], *value.shape) for key, value in module.state_dict().items()
    ]


@pytest.mark.oracle
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("storage", ["uint8", "bfloat16"])
def test_bitsandbytes_4bit_modules(double: bool, storage: str) -> None:
    """A real Linear4bit, quantized on the CPU and saved, counts the numel it had, in whatever dtype its bytes are kept."""
    torch, bnb = pytest.importorskip("torch"), pytest.importorskip("bitsandbytes")
    kept = {"quant_type": "nf4", "compress_statistics": double, "quant_storage": getattr(torch, storage)}
    layer = bnb.nn.Linear4bit(320, 96, bias=True, compute_dtype=torch.bfloat16, **kept)
    layer.weight = bnb.nn.Params4bit(torch.randn(96, 320, dtype=torch.bfloat16), requires_grad=False, **kept)
    tensors = of_module(layer.to("cpu"))
    assert len(tensors) == (7 if double else 5)
    facts = facts_of(tensors, quantized(quant_method="bitsandbytes", load_in_4bit=True))
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 96 * 320 + 96


@pytest.mark.oracle
def test_bitsandbytes_8bit_module() -> None:
    """A real Linear8bitLt saves one byte a weight, its row statistics and a layout code."""
    torch, bnb = pytest.importorskip("torch"), pytest.importorskip("bitsandbytes")
    layer = bnb.nn.Linear8bitLt(320, 96, bias=False, has_fp16_weights=False)
    layer.weight = bnb.nn.Int8Params(torch.randn(96, 320), requires_grad=False, has_fp16_weights=False)
    tensors = of_module(layer.to("cpu"))
    assert {stored.name.rpartition(".")[2] for stored in tensors} == {"weight", "SCB", "weight_format"}
    facts = facts_of(tensors, quantized(quant_method="bitsandbytes", load_in_8bit=True))
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 96 * 320


@pytest.mark.oracle
def test_transformers_quantized_modules() -> None:
    """The linear layers of transformers' own integrations, built on the meta device, count inputs × outputs."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.integrations.bitnet import BitLinear
    from transformers.integrations.eetq import EetqLinear
    from transformers.integrations.finegrained_fp8 import FP8Linear
    from transformers.integrations.metal_quantization import MetalLinear

    with torch.device("meta"):
        modules = {
            "fp8": FP8Linear(256, 384, block_size=(128, 128)),
            "bitnet": BitLinear(256, 384, bias=False, dtype=torch.bfloat16),
            "metal": MetalLinear(256, 384, bits=4, group_size=64),
            "eetq": EetqLinear(256, 384),
        }
    for method, module in modules.items():
        facts = facts_of(of_module(module), quantized(quant_method=method, bits=4, group_size=64))
        assert facts.parameters is not None, (method, facts.parameters_reason)
        assert facts.parameters.total == 256 * 384, method


@pytest.mark.oracle
@pytest.mark.parametrize(("dtype", "scale_format"), [("fp8", "float"), ("fp4", "float"), ("fp4", "ue8m0")])
def test_transformers_fp8_experts(dtype: str, scale_format: str) -> None:
    """Fused experts in FP8 and FP4, as transformers saves them: DeepSeek-V4's FP4 has a scale for 32 values, float32 or E8M0."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.integrations.finegrained_fp8 import FP8Experts

    config = transformers.GptOssConfig(hidden_size=256, intermediate_size=128, num_local_experts=4)
    config.moe_intermediate_size = 128
    with torch.device("meta"):
        experts = FP8Experts(config, block_size=(128, 128), expert_dtype=dtype, scale_fmt=scale_format)
    facts = facts_of(
        of_module(experts, "model.layers.0.mlp.experts"), quantized(quant_method="fp8", weight_block_size=[128, 128])
    )
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == 4 * 3 * 256 * 128


@pytest.mark.oracle
def test_mlx_with_widths_of_single_modules_of_a_real_index(tmp_path: Path) -> None:
    """A real MLX repository with 74 modules at another width: transformers' shapes, packed as its config says, have the index's names and bytes.

    The count is what transformers 5.23.0 builds; the index's own total_parameters is 4,608 less.
    """
    folder = CORPUS / "Arp1tMoga__fast_qwen_Qwen3.5_quantized_"
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if not folder.exists():
        pytest.skip("the corpus is not here")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    plain = {key: value for key, value in config.items() if key not in ("quantization", "quantization_config")}
    (tmp_path / "config.json").write_text(json.dumps(plain), encoding="utf-8")
    with torch.device("meta"):
        model = transformers.Qwen3_5ForConditionalGeneration(transformers.AutoConfig.from_pretrained(tmp_path))
    tensors: list[TensorInfo] = []
    for key, value in model.state_dict().items():
        name = key.replace("model.language_model.", "language_model.model.").replace("model.visual.", "vision_tower.")
        module = ("language_model." + name if name.startswith("lm_head") else name).removesuffix(".weight")
        if f"{module}.scales" in index["weight_map"]:
            said = config["quantization"].get(module, config["quantization"])
            tensors += made.mlx(said["bits"], said["group_size"])(module, *value.shape)
        else:
            tensors.append(tensor(name, "BF16", *value.shape))
    assert {stored.name for stored in tensors} == set(index["weight_map"])
    assert sum(stored.stored_bytes for stored in tensors) == index["metadata"]["total_size"]
    facts = facts_of(tensors, config)
    assert facts.parameters is not None, facts.parameters_reason
    assert facts.parameters.total == sum(parameter.numel() for parameter in model.parameters()) == 27_356_728_560


def drawn_tensors(method: Method) -> st.SearchStrategy[list[TensorInfo]]:
    """Tensors with names of two layers, with all endings that ``method`` knows, of dtypes and shapes that it may or may not expect."""
    rows = method.containers
    endings = {row.ending for row in rows} | {ending for row in rows for ending in row.companions}
    endings |= {*method.beside, *method.beside.values(), *method.unbuilt, *method.auxiliary, *method.unbuilt_beside}
    endings |= {ending for group in method.unbuilt_beside.values() for ending in group} | {".weight", ".bias"}
    dtypes = sorted({dtype for row in rows for dtype in row.dtypes} | {"BF16", "F32", "I64", "F8_E8M0"})
    return st.lists(
        st.builds(
            TensorInfo,
            st.builds("layers.{}.fc{}".format, st.integers(0, 11), st.sampled_from(sorted(endings))),
            st.sampled_from(dtypes),
            st.sampled_from([(256, 128), (2, 1), (128, 256), (64,), ()]),
            st.just(1),
        ),
        max_size=12,
        unique_by=lambda one: one.name,
    )


@given(data=st.data(), method=st.sampled_from(methods()), by_module=st.booleans())
def test_alike_tensors_hold_together_what_each_holds(data: st.DataObject, method: Method, by_module: bool) -> None:
    """Telling tensors apart that are alike but for numbers gives each what asking for it alone does, and loses none."""
    tensors = data.draw(drawn_tensors(method))
    own = {"layers.1.fc": Setting(bits=8, group_size=64)} if by_module else {}
    scheme = Scheme(
        name=method.name, method=method, where="here", settings=(Setting(bits=4, group_size=128),), by_module=own
    )
    _, held_by = unpacker(by_name(tensors), scheme)
    alike: dict[tuple[object, ...], list[TensorInfo]] = {}
    for one in tensors:
        alike.setdefault((pattern_of(one.name), one.dtype, one.shape), []).append(one)
    told = {one: held for those in alike.values() for held, same in held_by.told_apart(those) for one in same}
    assert told == {one: held_by(one) for one in tensors}
