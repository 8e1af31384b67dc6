"""Quantized checkpoints saved by their own libraries and loaded by transformers: the bytes that it then holds, and those after the first pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.data import table
from hubaudit.estimate.infer import estimate
from hubaudit.facts.repository import understand
from hubaudit.hub.fetching import fetch
from hubaudit.types import Workload

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # the libraries warn each other

LLAMA: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}  # fmt: skip


def llama() -> Any:
    """A small Llama in bf16."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).to(torch.bfloat16)


def held_by(model: Any) -> int:
    """Bytes of all parameters, and of buffers but the rotary frequencies, which no checkpoint holds."""
    tensors = [
        *model.named_parameters(),
        *(pair for pair in model.named_buffers() if not pair[0].endswith(("inv_freq",))),
    ]
    return sum(tensor.numel() * tensor.element_size() for _, tensor in tensors)


def weights_of(folder: Path) -> tuple[int | None, dict[str, int], int]:
    """What is told of a folder: resident bytes, bytes of each phase without all that is not weights, and the weights at the peak."""
    facts = understand(fetch(str(folder), offline=True))
    made = estimate(facts, Workload(prompt_tokens=4, new_tokens=1))
    peak = next(part for part in made.components if part.id == "weights")
    return facts.resident_bytes, {phase.name: phase.bytes for phase in made.phases}, peak.bytes


def test_loaders_of_transformers_are_those_of_the_table() -> None:
    """What the table says is loaded, transformers loads, of the methods whose containers are understood; what it calls refused has no loader."""
    auto = pytest.importorskip("transformers.quantizers.auto")
    loads = {name.replace("_4bit", "").replace("_8bit", "").replace("_", "-") for name in auto.AUTO_QUANTIZER_MAPPING}
    understood = {name.replace("_", "-") for row in table("quantizers.toml")["method"] for name in row["called"]}
    rows = table("packed_loading.toml")["method"]
    told = {name for row in rows if row["held"] != "refused" for name in row["called"]}
    refused = {name for row in rows if row["held"] == "refused" for name in row["called"]}
    assert loads & understood <= told
    assert loads & refused <= {"nvfp4"}  # made while loading only: quantizers/quantizer_nvfp4.py, validate_environment


@pytest.mark.parametrize("preset", ["W4A16", "W8A8", "FP8", "NVFP4", "MXFP4A16"])
def test_compressed_tensors(preset: str, tmp_path: Path) -> None:
    """Packed once loaded, whole after the first pass: both to the byte."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    model = llama()
    scheme = QuantizationConfig(config_groups={preset: ["Linear"]}, ignore=["lm_head"])
    apply_quantization_config(model, scheme, run_compressed=False)
    for module in model.modules():
        for name in ("weight_scale", "weight_global_scale", "input_scale", "input_global_scale"):
            if hasattr(module, name):
                getattr(module, name).data.fill_(1)
    compressor = ModelCompressor(quantization_config=scheme)
    compressor.compress_model(model)
    model.save_pretrained(tmp_path)
    compressor.update_config(tmp_path)
    resident, phases, peak = weights_of(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert resident == held_by(loaded)
    with torch.no_grad():
        loaded(torch.ones(1, 4, dtype=torch.long))
    assert peak == held_by(loaded)
    assert phases["prefill"] - phases["load"] >= peak - resident


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("how", [{"load_in_8bit": True}, {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}])
def test_bitsandbytes(how: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    """Quantized weights stay, and what is not quantized has the dtype of the config, whatever the files hold it in."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("bitsandbytes")
    safetensors = pytest.importorskip("safetensors.torch")
    llama().save_pretrained(tmp_path / "plain")
    quantization = transformers.BitsAndBytesConfig(**how)
    transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", quantization_config=quantization, device_map="cpu"
    ).save_pretrained(tmp_path / "packed")
    path = tmp_path / "packed" / "model.safetensors"
    tensors = safetensors.load_file(path)
    cast = {
        name: tensor.to(getattr(torch, dtype)) if tensor.dtype == torch.bfloat16 else tensor
        for name, tensor in tensors.items()
    }
    safetensors.save_file(cast, path, metadata={"format": "pt"})
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "packed", device_map="cpu")
    state = [
        tensor
        for module in loaded.modules()
        if getattr(getattr(module, "weight", None), "quant_state", None) is not None
        for name, tensor in module.weight.quant_state.as_dict(packed=True).items()
        if "bitsandbytes__" not in name
    ]
    beside = sum(tensor.numel() * tensor.element_size() for tensor in state)
    scales = [
        module.weight.SCB
        for module in loaded.modules()
        if getattr(getattr(module, "weight", None), "SCB", None) is not None
    ]
    beside += sum(tensor.numel() * tensor.element_size() for tensor in scales)
    resident, _, peak = weights_of(tmp_path / "packed")
    assert resident == peak == held_by(loaded) + beside
