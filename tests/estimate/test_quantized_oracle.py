"""Quantizing while loading, against the libraries themselves: which modules are converted, and the bytes of every tensor."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import made

from hubaudit.estimate.conversion import conversion_of
from hubaudit.estimate.infer import estimate
from hubaudit.estimate.quantized_weights import Matrix, Split, bytes_of, split
from hubaudit.facts.repository import understand
from hubaudit.facts.skeleton import described_model_types, usual_class
from hubaudit.hub import fetch
from hubaudit.types import ModelFacts, Workload

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
bitsandbytes = pytest.importorskip("bitsandbytes")

pytestmark = pytest.mark.oracle

TEXT = {
    "hidden_size": 72, "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 18, "vocab_size": 131, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_local_experts": 3, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 52,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
#: Small models of random weights: dense, tied and untied, experts, Conv1D, encoders, an encoder with a decoder, multimodal.
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-untied": ("LlamaForCausalLM", TEXT | {"tie_word_embeddings": False}),
    "qwen2-tied": ("Qwen2ForCausalLM", TEXT | {"tie_word_embeddings": True}),
    "mixtral": ("MixtralForCausalLM", TEXT | EXPERTS),
    "qwen3-moe": ("Qwen3MoeForCausalLM", TEXT | EXPERTS),
    "deepseek-v3, whose router saves a buffer": ("DeepseekV3ForCausalLM", {k: v for k, v in TEXT.items() if k != "head_dim"} | {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
        "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
    }),
    "glm4-moe, the same": ("Glm4MoeForCausalLM", TEXT | {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
    }),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 36, "n_layer": 2, "n_head": 2, "vocab_size": 97, "n_positions": 32}),
    "t5": ("T5ForConditionalGeneration", {"d_model": 40, "d_kv": 10, "d_ff": 56, "num_layers": 2, "num_heads": 4, "vocab_size": 99}),
    "bert": ("BertForMaskedLM", {k: v for k, v in TEXT.items() if k not in ("num_key_value_heads", "head_dim")}),
    "llava": ("LlavaForConditionalGeneration", {
        "text_config": TEXT | {"model_type": "llama", "tie_word_embeddings": False}, "vision_config": TOWER | {"model_type": "clip_vision_model"},
        "image_token_index": 5,
    }),
    "qwen2-vl": ("Qwen2VLForConditionalGeneration", {
        "text_config": {k: v for k, v in TEXT.items() if k != "head_dim"} | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 4]}},
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 72, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14},
        "image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8,
    }),
    "idefics3": ("Idefics3ForConditionalGeneration", {
        "text_config": TEXT | {"model_type": "llama"}, "vision_config": TOWER, "image_token_id": 5, "scale_factor": 2,
    }),
}  # fmt: skip
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
HOW: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "int8": ({"load_in_8bit": True}, {"quant": "int8"}),
    "nf4": (NF4, {"quant": "nf4"}),
    "fp4-double": (
        {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": True},
        {"quant": "fp4", "bnb_4bit_use_double_quant": True},
    ),
    "nf4-double-in-bf16": (
        NF4 | {"bnb_4bit_use_double_quant": True, "bnb_4bit_quant_storage": "bfloat16"},
        {"quant": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_quant_storage": "bfloat16"},
    ),
}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.utils.logging.set_verbosity_error()
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function from a small model's name to the folder that it is saved in, made once."""
    folders: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in folders:
            class_name, said = SMALL[name]
            made_class = getattr(transformers, class_name)
            torch.manual_seed(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = made_class(made_class.config_class(**json.loads(json.dumps(said)))).to(torch.bfloat16)
                folders[name] = tmp_path_factory.mktemp(name)
                model.save_pretrained(folders[name])
        return folders[name]

    return folder


def stored(tensor: Any) -> int:
    """Bytes of a tensor's storage."""
    return int(tensor.untyped_storage().nbytes())


def held(module: Any) -> dict[str, int]:
    """The tensors that a quantized layer of bitsandbytes holds for its weight, by what they are."""
    weight = module.weight
    if isinstance(module, bitsandbytes.nn.Linear8bitLt):
        assert weight.CB is None or weight.CB.data_ptr() == weight.data.data_ptr()
        return {"weight_bytes": stored(weight.data), "row_scale_bytes": stored(weight.SCB)}
    state = weight.quant_state
    sizes = {
        "packed_bytes": stored(weight.data),
        "absmax_bytes": stored(state.absmax),
        "code_bytes": stored(state.code),
    }
    if state.nested:
        sizes["code_bytes"] += stored(state.state2.code)
        sizes |= {"nested_absmax_bytes": stored(state.state2.absmax), "offset_bytes": stored(state.offset)}
    return sizes


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", SMALL)
def test_every_tensor_of_bitsandbytes_to_the_byte(name: str, how: str, saved: Any) -> None:
    """A model loaded by transformers with bitsandbytes on the CPU: the converted modules, each of their tensors, and all weights together."""
    config, asked = HOW[how]
    loaded = getattr(transformers, SMALL[name][0]).from_pretrained(
        saved(name), quantization_config=transformers.BitsAndBytesConfig(**config), device_map="cpu"
    )
    layers = (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)
    theirs = {f"{path}.weight": held(module) for path, module in loaded.named_modules() if isinstance(module, layers)}
    workload = Workload(**asked)
    facts, conversion = understand(fetch(str(saved(name)))), conversion_of(workload)
    assert conversion is not None
    found = split(facts, conversion, "BF16")
    assert found is not None
    ours = {
        weight.name: {part: bytes_of(formula, weight, conversion, 2) for part, formula in conversion.parts.items()}
        for weight in found.converted
    }
    assert ours == theirs
    weights = next(part for part in estimate(facts, workload).components if part.id == "weights")
    others = {
        parameter.data_ptr(): stored(parameter) for path, parameter in loaded.named_parameters() if path not in theirs
    }
    others |= {buffer.data_ptr(): stored(buffer) for path, buffer in loaded.named_buffers() if path in _saved(loaded)}
    assert weights.bytes == sum(sum(sizes.values()) for sizes in theirs.values()) + sum(others.values())
    assert weights.exactness == "exact"


def _saved(model: Any) -> frozenset[str]:
    return frozenset(model.state_dict())


def test_modules_told_by_the_names_of_files_alone(tmp_path: Path) -> None:
    """A model that the tables do not describe: tables of positions and of patches in its tower stay, and the figure is no exact one and has a band."""
    made_class = transformers.AyaVisionForConditionalGeneration
    said = {
        "text_config": TEXT | {"model_type": "cohere2"}, "vision_config": TOWER | {"model_type": "siglip_vision_model", "vision_use_head": False}, "image_token_id": 5,
    }  # fmt: skip
    made_class(made_class.config_class(**said)).to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = made_class.from_pretrained(
        tmp_path, quantization_config=transformers.BitsAndBytesConfig(**NF4), device_map="cpu"
    )
    theirs = {f"{path}.weight": held(module) for path, module in loaded.named_modules() if _is_four_bit(module)}
    others = {
        parameter.data_ptr(): stored(parameter) for path, parameter in loaded.named_parameters() if path not in theirs
    }
    facts = understand(fetch(str(tmp_path)))
    assert not facts.built
    weights = next(part for part in estimate(facts, Workload(quant="nf4")).components if part.id == "weights")
    assert weights.bytes == sum(sum(sizes.values()) for sizes in theirs.values()) + sum(others.values())
    assert weights.exactness == "formula"
    assert weights.low_bytes < weights.bytes < weights.high_bytes


def _is_four_bit(module: Any) -> bool:
    return isinstance(module, bitsandbytes.nn.Linear4bit)


@pytest.mark.parametrize("model_type", described_model_types())
def test_the_converted_modules_are_those_that_transformers_converts(model_type: str) -> None:
    """Class defaults of every described model type: the modules that bitsandbytes, AWQ and GPTQ (optimum) convert are the predicted ones."""
    facts, model = _of_class_defaults(model_type)
    tied = {name.removesuffix(".weight") for name in model.all_tied_weights_keys}
    for quant, theirs in (("awq", _converted_by_awq(model)), ("gptq", _converted_by_optimum(model))):
        found = _split(facts, None, quant)
        if found.is_certain and theirs is not None:
            assert _names(found) == theirs - tied, quant
    found = _split(facts, None)
    if found.is_certain:
        assert _names(found) == _converted_by_transformers(model, None)


@pytest.mark.parametrize("model_type", ["llama", "t5", "mixtral"])
def test_a_skip_list_takes_the_place_of_what_is_kept_by_default(model_type: str) -> None:
    """Keys match the start of a name as a pattern, or its end, and an untied head that is not listed is converted."""
    facts, model = _of_class_defaults(model_type)
    skip = ["q_proj", r"model.layers.\d*1", "encoder.block.0.layer.0"]
    found = _split(facts, tuple(skip))
    assert found.is_certain == (model_type != "t5")
    tied = {name.removesuffix(".weight") for name in model.all_tied_weights_keys}
    assert _names(found) == _converted_by_transformers(model, skip) - tied


def _split(facts: ModelFacts, skip: tuple[str, ...] | None, quant: str = "int8") -> Split:
    conversion = conversion_of(Workload(quant=quant, llm_int8_skip_modules=skip))
    assert conversion is not None
    found = split(facts, conversion, "BF16")
    assert found is not None
    return found


def _names(found: Split) -> set[str]:
    return {weight.name.removesuffix(".weight") for weight in found.converted}


def _of_class_defaults(model_type: str) -> tuple[ModelFacts, Any]:
    made_class = getattr(transformers, usual_class(model_type), None)
    if made_class is None:
        pytest.skip("not exported")
    try:
        config = made_class.config_class()
        said = json.loads(config.to_json_string(use_diff=False)) | {"architectures": [made_class.__name__]}
        with torch.device("meta"):
            model = made_class(config)
    except Exception:  # noqa: BLE001 -- whatever a class raises, it refuses its own defaults
        pytest.skip("the class refuses its own defaults")
    facts = understand(made(said))
    if not facts.built:
        pytest.skip("the configuration leaves something open")
    return facts, model


def _converted_by_transformers(model: Any, skip: list[str] | None) -> set[str]:
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import HfQuantizer

    keys = HfQuantizer.get_modules_to_not_convert(model, skip, model._keep_in_fp32_modules)
    config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    replaced = replace_with_bnb_linear(model, modules_to_not_convert=keys, quantization_config=config)
    return {name for name, module in replaced.named_modules() if isinstance(module, bitsandbytes.nn.Linear8bitLt)}


def _converted_by_awq(model: Any) -> set[str]:
    """What ``replace_with_awq_linear`` takes, by its own condition; the library is not needed for that."""
    from transformers.quantizers.base import HfQuantizer
    from transformers.quantizers.quantizers_utils import should_convert_module

    keys = HfQuantizer.get_modules_to_not_convert(model, None, model._keep_in_fp32_modules, add_default_skips=True)
    linear = (name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    return {name for name in linear if should_convert_module(name, keys)}


def _converted_by_optimum(model: Any) -> set[str] | None:
    """The layers that optimum exchanges when transformers loads a GPTQ checkpoint; ``None`` without optimum, and where it refuses."""
    try:
        from optimum.gptq.utils import get_block_name_with_pattern, get_layers
    except ImportError:
        return None
    try:
        return set(get_layers(model, prefix=get_block_name_with_pattern(model)))
    except ValueError:
        return None


#: Widths that groups of 32 divide, with biases and without, tied and untied, experts.
_OF_GROUPS = {"hidden_size": 128, "intermediate_size": 192, "head_dim": 32}
PACKABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-untied": ("LlamaForCausalLM", TEXT | _OF_GROUPS | {"tie_word_embeddings": False}),
    "qwen2-tied": ("Qwen2ForCausalLM", TEXT | _OF_GROUPS | {"tie_word_embeddings": True}),
    "qwen3-moe": ("Qwen3MoeForCausalLM", TEXT | _OF_GROUPS | EXPERTS),
    "opt": ("OPTForCausalLM", {"hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 97, "word_embed_proj_dim": 64}),
}  # fmt: skip
#: What gptqmodel is asked for: kernels in plain torch, which run on a CPU.
PACKED_BY: dict[str, tuple[str, dict[str, Any]]] = {
    "gptq": ("GPTQConfig", {"bits": 4, "desc_act": False, "backend": "torch"}),
    "gptq-int8": ("GPTQConfig", {"bits": 8, "desc_act": True, "backend": "torch"}),
    "awq": ("AwqConfig", {"bits": 4, "backend": "torch_awq"}),
}


@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize("quant", PACKED_BY)
@pytest.mark.parametrize("name", PACKABLE)
def test_every_tensor_of_gptq_and_awq_to_the_byte(name: str, quant: str, group: int, tmp_path: Path) -> None:
    """A packed checkpoint loaded by transformers with gptqmodel on the CPU: every tensor of each converted module, and all weights together.

    Tables of shifts that the plain kernel makes for itself, 64 bytes a module, are no part of it.
    """
    pytest.importorskip("gptqmodel", reason="tox -e quantizers has it")
    class_name, said = PACKABLE[name]
    config_class, asked = PACKED_BY[quant]
    how = getattr(transformers, config_class)(group_size=group, **asked)
    loaded = _packed_and_loaded(class_name, said, how, tmp_path)
    theirs = {
        f"{path}.weight": {
            f"{part}_bytes": stored(tensor) for part, tensor in module.state_dict().items() if part != "bias"
        }
        for path, module in loaded.named_modules()
        if type(module).__module__.startswith("gptqmodel")
    }
    made_class = getattr(transformers, class_name)
    config = made_class.config_class(**json.loads(json.dumps(said)))
    facts = understand(made(json.loads(config.to_json_string(use_diff=False)) | {"architectures": [class_name]}))
    workload = Workload(quant=quant, quant_group_size=group, dtype="bf16")
    conversion = conversion_of(workload)
    assert conversion is not None
    found = split(facts, conversion, "BF16")
    assert found is not None
    assert theirs == {
        weight.name: {part: bytes_of(formula, weight, conversion, 2) for part, formula in conversion.parts.items()}
        for weight in found.converted
    }
    weights = next(part for part in estimate(facts, workload).components if part.id == "weights")
    others = {parameter.data_ptr(): stored(parameter) for parameter in loaded.parameters()}
    biases = sum(
        stored(module.bias)
        for path, module in loaded.named_modules()
        if f"{path}.weight" in theirs and getattr(module, "bias", None) is not None
    )
    assert weights.bytes == sum(sum(sizes.values()) for sizes in theirs.values()) + sum(others.values()) + biases
    assert weights.exactness == "exact"


def _packed_and_loaded(class_name: str, said: dict[str, Any], how: Any, folder: Path) -> Any:
    """A checkpoint of zeros in the method's own modules, written and loaded as any other."""
    from transformers.quantizers.auto import AutoHfQuantizer

    made_class = getattr(transformers, class_name)
    with torch.device("meta"):
        model = made_class(made_class.config_class(**json.loads(json.dumps(said)))).to(torch.bfloat16)
    quantizer = AutoHfQuantizer.from_config(how, pre_quantized=True)
    quantizer.preprocess_model(model, device_map={"": "cpu"})
    model = model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    model.config.quantization_config = how
    model.hf_quantizer = quantizer
    model.save_pretrained(folder)
    return made_class.from_pretrained(folder, device_map="cpu", dtype=torch.bfloat16)


def test_mxfp4_experts_are_those_of_transformers() -> None:
    """The packed tensors that transformers declares for gpt-oss's experts; the scales lie in objects of a kernel and are seen in real headers only."""
    from transformers.integrations.mxfp4 import Mxfp4GptOssExperts

    config = transformers.GptOssConfig(hidden_size=96, intermediate_size=64, num_local_experts=3)
    with torch.device("meta"):
        experts = Mxfp4GptOssExperts(config)
    conversion = conversion_of(Workload(quant="mxfp4"))
    assert conversion is not None
    for name, rows, columns in (("gate_up_proj", 128, 96), ("down_proj", 96, 64)):
        weight = Matrix(name=name, kind="experts", rows=rows, columns=columns, matrices=3)
        assert bytes_of(conversion.parts["packed_bytes"], weight, conversion, 2) == getattr(experts, name).nbytes


def _bytes_inside(tensor: Any) -> dict[str, int]:
    """The tensors that a tensor subclass of torchao is made of."""
    names, _ = tensor.__tensor_flatten__()
    return {name: stored(getattr(tensor, name)) for name in names}


@pytest.mark.parametrize("quant", ["torchao-int8", "torchao-float8"])
@pytest.mark.parametrize("name", ["qwen2-tied", "qwen3-moe", "t5"])
def test_every_tensor_of_torchao_to_the_byte(name: str, quant: str, saved: Any) -> None:
    """A model loaded by transformers with torchao on the CPU: which weights are converted, and what each is made of."""
    configs = pytest.importorskip("torchao.quantization")
    how = {"torchao-int8": configs.Int8WeightOnlyConfig, "torchao-float8": configs.Float8WeightOnlyConfig}[quant]()
    loaded = getattr(transformers, SMALL[name][0]).from_pretrained(
        saved(name), quantization_config=transformers.TorchAoConfig(how), device_map="cpu"
    )
    theirs = {
        path: _bytes_inside(weight)
        for path, weight in loaded.named_parameters()
        if hasattr(weight, "__tensor_flatten__")
    }
    facts, conversion = understand(fetch(str(saved(name)))), conversion_of(Workload(quant=quant))
    assert conversion is not None
    found = split(facts, conversion, "BF16")
    assert found is not None
    parts = {"weight_bytes": "qdata", "row_scale_bytes": "scale", "zero_point_bytes": "zero_point"}
    ours = {
        weight.name: {
            parts[part]: bytes_of(formula, weight, conversion, 2) for part, formula in conversion.parts.items()
        }
        for weight in found.converted
    }
    assert ours == theirs


@pytest.mark.parametrize("shape", [(256, 384), (576, 256), (128, 100), (3, 256, 128)])
def test_fine_grained_fp8_is_what_transformers_makes(shape: tuple[int, ...]) -> None:
    """One weight through transformers' own conversion: a float32 scale for 128 × 128 values, or the weight as it was."""
    from transformers.integrations.finegrained_fp8 import Fp8Quantize

    quantizer = type("Quantizer", (), {"quantization_config": transformers.FineGrainedFP8Config()})()
    made_of = Fp8Quantize(quantizer).convert({"up.weight": torch.randn(shape, dtype=torch.bfloat16)})
    conversion = conversion_of(Workload(quant="fp8"))
    assert conversion is not None
    weight = Matrix(
        name="up.weight", kind="linear", rows=shape[-2], columns=shape[-1], matrices=shape[0] if len(shape) == 3 else 1
    )
    if not conversion.fits_blocks(weight.rows, weight.columns):
        assert made_of["up.weight"].dtype == torch.bfloat16
        return
    ours = {part: bytes_of(formula, weight, conversion, 2) for part, formula in conversion.parts.items()}
    assert ours == {
        "weight_bytes": stored(made_of["up.weight"]), "block_scale_bytes": stored(made_of["up.weight_scale_inv"])
    }  # fmt: skip


@pytest.mark.parametrize("shape", [(96, 256), (256, 128), (64, 640)])
@pytest.mark.parametrize("group", [32, 64])
def test_every_tensor_of_hqq_to_the_byte(shape: tuple[int, int], group: int) -> None:
    """One layer of hqq in 4 bit: packed values, a scale and a zero for each group."""
    hqq = pytest.importorskip("hqq.core.quantize")
    layer = torch.nn.Linear(shape[1], shape[0], bias=False)
    config = hqq.BaseQuantizeConfig(nbits=4, group_size=group, axis=1)
    quantized = hqq.HQQLinear(layer, config, compute_dtype=torch.bfloat16, device="cpu")
    conversion = conversion_of(Workload(quant="hqq", quant_group_size=group))
    assert conversion is not None
    weight = Matrix(name="up.weight", kind="linear", rows=shape[0], columns=shape[1])
    assert {part: bytes_of(formula, weight, conversion, 2) for part, formula in conversion.parts.items()} == {
        "packed_bytes": stored(quantized.W_q.data),
        "scale_bytes": stored(quantized.meta["scale"]),
        "zero_bytes": stored(quantized.meta["zero"]),
    }
