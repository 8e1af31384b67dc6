"""`device_map="auto"` against accelerate's own functions on the same model, tensor by tensor; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hubaudit.errors import CannotAuditError, UsageError
from hubaudit.exact.device_map import place

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 256, "intermediate_size": 700, "num_hidden_layers": 9, "num_attention_heads": 8, "vocab_size": 3001},
    "qwen2": {"hidden_size": 128, "intermediate_size": 300, "num_hidden_layers": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8000, "tie_word_embeddings": True},
    "gpt2": {"n_embd": 128, "n_layer": 6, "n_head": 4, "vocab_size": 5000},
    "mixtral": {"hidden_size": 128, "intermediate_size": 200, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "vocab_size": 1000},
    "mamba": {"hidden_size": 128, "num_hidden_layers": 6, "vocab_size": 2000},
}  # fmt: skip
MIB = 2**20


def whole_model(model_type: str, dtype: str) -> Any:
    """The same model, as the test itself builds it."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, **CONFIGS[model_type])
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))


def by_accelerate(model: Any, limits: dict[int | str, int]) -> dict[str, int]:
    """Bytes by device as accelerate places and counts: parameters and buffers, a tied one once.

    How much each device may get is balanced by transformers, as from_pretrained does: accelerate's own balance counts a tied embedding twice.
    """
    accelerate = pytest.importorskip("accelerate.utils.modeling")
    transformers = pytest.importorskip("transformers.integrations.accelerate")
    whole = list(model._no_split_modules or [])
    balanced = transformers.get_balanced_memory(model, max_memory=dict(limits), no_split_module_classes=whole)
    chosen = accelerate.infer_auto_device_map(model, max_memory=balanced, no_split_module_classes=whole)
    sums: dict[str, int] = {}
    for tensors in (model.named_parameters(), model.named_buffers()):
        for name, tensor in tensors:
            prefix = max((one for one in chosen if one == "" or f"{name}.".startswith(f"{one}.")), key=len)
            device = str(chosen[prefix])
            sums[device] = sums.get(device, 0) + tensor.numel() * tensor.element_size()
    return sums


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")  # the libraries warn each other
@pytest.mark.parametrize("model_type", CONFIGS)
@pytest.mark.parametrize(
    ("gpus", "cpu"),
    [((60,), 1000), ((8,), 1000), ((6,), 12), ((5, 5), 1000), ((4, 6, 2), 1000), ((3, 3), 6), ((20, 20, 20), 1000)],
    ids=str,
)
def test_modules_are_where_accelerate_puts_them(model_type: str, gpus: tuple[int, ...], cpu: int) -> None:
    """Bytes on every device equal accelerate's, with offload to the host and to disk, uneven cards, tied embeddings, experts and states."""
    model = whole_model(model_type, "float32")
    config = model.config.to_dict()
    gpu_bytes, cpu_bytes = [size * MIB for size in gpus], cpu * MIB
    found = place(config, architecture=type(model).__name__, dtype="fp32", gpu_bytes=gpu_bytes, cpu_bytes=cpu_bytes)
    # What transformers makes of them before it asks: nine tenths of one card, nine tenths of the host's memory.
    usable = [gpu_bytes[0] * 90 // 100] if len(gpus) == 1 else gpu_bytes
    expected = by_accelerate(model, {**dict(enumerate(usable)), "cpu": cpu_bytes * 90 // 100})
    assert {row.device: row.bytes for row in found.rows} == expected
    numbers = [number for row in found.rows for number in row.layers]
    assert len(numbers) == len(set(numbers))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_every_layer_is_in_one_row() -> None:
    """Layers are never cut, each is somewhere, and the names of the rest are told."""
    config = whole_model("llama", "bfloat16").config.to_dict()
    found = place(config, architecture="LlamaForCausalLM", dtype="bf16", gpu_bytes=[3 * MIB, 5 * MIB])
    assert sorted(number for row in found.rows for number in row.layers) == list(range(9))
    assert {name for row in found.rows for name in row.modules} == {"embed_tokens", "norm", "lm_head"}
    assert found.rows[-1].device == "cpu"
    assert any("host memory" in said for said in found.assumptions)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "no-such-type"}, "no model type"),
        ({}, "no model type"),
        ({"model_type": "llama", "hidden_size": "wide"}, "cannot build"),
        ({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}, "quantized"),
    ],
)
def test_what_cannot_be_built_says_why(config: dict[str, Any], words: str) -> None:
    """One line, whatever the library raises; nothing of a repository's own is run."""
    pytest.importorskip("torch")
    with pytest.raises(CannotAuditError, match=words):
        place(config, architecture="Evil", dtype="bf16", gpu_bytes=[MIB])


def test_without_the_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra's name, and what works without it."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(UsageError) as refused:
        place({"model_type": "llama"}, architecture=None, dtype="bf16", gpu_bytes=[MIB])
    assert "hubaudit[exact]" in refused.value.hint
