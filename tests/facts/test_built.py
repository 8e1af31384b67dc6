"""Parameters as transformers builds them: only where they are those of the weights, and as the shapes of flat containers."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_models import NAMES, facts_of, made

from hubaudit.facts.repository import understand

ODD: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 15, "intermediate_size": 7, "num_hidden_layers": 1,
    "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 5, "vocab_size": 11, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
LAYER = {
    "self_attn.q_proj": (15, 15), "self_attn.k_proj": (5, 15), "self_attn.v_proj": (5, 15), "self_attn.o_proj": (15, 15),
    "mlp.gate_proj": (7, 15), "mlp.up_proj": (7, 15), "mlp.down_proj": (15, 7),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_they_are_the_weights_or_nothing(name: str) -> None:
    """Where a model has them, they add up to the parameters that are loaded; quantized checkpoints have none."""
    facts = facts_of(name)
    total = 0
    for tensor in facts.built:
        size = 1
        for side in tensor.shape:
            size *= side
        total += size
    assert not facts.built or (facts.parameters is not None and total == facts.parameters.loaded)
    assert not (facts.built and facts.quantization)


def test_four_bit_weights_of_odd_size_are_counted_by_the_shapes_of_the_config() -> None:
    """Seven matrices of 15 × 15, 5 × 15 and 7 × 15 in NF4: all odd, each in a byte more than half of it; the count is the model's own."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("BF16", (11, 15)),
        "model.norm.weight": ("BF16", (15,)),
        "model.layers.0.input_layernorm.weight": ("BF16", (15,)),
        "model.layers.0.post_attention_layernorm.weight": ("BF16", (15,)),
    }
    for module, (rows, columns) in LAYER.items():
        weight = f"model.layers.0.{module}.weight"
        tensors[weight] = ("U8", ((rows * columns + 1) // 2, 1))
        tensors[f"{weight}.absmax"] = ("F32", (-(-rows * columns // 64),))
        tensors[f"{weight}.quant_map"] = ("F32", (16,))
        tensors[f"{weight}.quant_state.bitsandbytes__nf4"] = ("U8", (80,))
    quantized = ODD | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    counted, plain = understand(made(quantized, tensors)).parameters, understand(made(ODD)).parameters
    assert counted is not None
    assert plain is not None
    assert counted.total == plain.total == 11 * 15 + 3 * 15 + sum(rows * columns for rows, columns in LAYER.values())
