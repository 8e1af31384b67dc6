"""The largest temporaries alive at once in a forward pass without gradients: inside a layer, at the head, and for one new token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.component import Input, component, given, known

if TYPE_CHECKING:
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts

#: cos and sin of the positions.
_ROTARY = " + 2 * prompt_tokens * head_dim * dtype_bits // 8"
#: While the gated MLP of a Llama-type block runs, four tensors of the hidden size and three of the MLP's width are alive, and cos and sin.
_MLP = "batch_size * prompt_tokens * (4 * hidden_size + 3 * intermediate_size) * dtype_bits // 8" + _ROTARY
#: The same while one of its matrices is multiplied: one tensor of the MLP's width, the product's own being counted with the product.
_MATRIX = "batch_size * prompt_tokens * (4 * hidden_size + intermediate_size) * dtype_bits // 8" + _ROTARY
#: Eager attention: the stream, queries (and keys and values repeated for every query head), the mask, and the scores three times in the
#: compute dtype and once as float32 under the softmax.
_EAGER = (
    "batch_size * prompt_tokens * (3 * hidden_size + query_copies * attention_heads * head_dim) * dtype_bits // 8"
    " + batch_size * prompt_tokens * prompt_tokens * (dtype_bits + attention_heads * (3 * dtype_bits + 32)) // 8"
    + _ROTARY
)
#: Experts: the stream, and for each token and each of its experts the inputs in the experts' order with either gate, up and their product, or the
#: outputs three times while they are weighted and put back in order.
_EXPERTS = (
    "batch_size * prompt_tokens * (4 * hidden_size + experts_per_token * max(hidden_size + 4 * expert_intermediate_size, 4 * hidden_size))"
    " * dtype_bits // 8" + _ROTARY
)
#: One new token: the MLP's three tensors, and one layer's keys and values a second time while the token is appended.
_DECODE = (
    "6 * batch_size * intermediate_size * dtype_bits // 8"
    " + batch_size * largest_layer_elements * (prompt_tokens + new_tokens) * kv_bits // 8"
)
_TRACED = "storage lifetimes of a gated decoder block in eager torch, transformers 5.23.0; 22 traced cases: mean error 0.23 %, worst 1.03 % of the peak"
_UNTRACED = "as for a gated decoder block; this model's blocks were not traced, hence the wide band"
_ROUTED = "transformers 5.23.0, integrations/moe.py (grouped_mm_experts_forward), by the lifetimes of its tensors; not traced, hence the wide band"
_LOGITS = "8 * batch_size * vocab_size"
_LOGITS_SOURCE = "logits of the last token in 16 bit, their float32 copy and the scores that generate() derives, transformers 5.23.0 generation/utils.py"
_ALL_LOGITS = "batch_size * prompt_tokens * vocab_size * (dtype_bits + 32) // 8 + batch_size * prompt_tokens * hidden_size * dtype_bits // 8"
#: Model types whose blocks were traced, or are the same code (their modeling files inherit the block).
_TRACED_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "phi3"})
_TRACED_PERCENT = (5, 5)
_UNTRACED_PERCENT = (50, 50)


def layer_activations(facts: ModelFacts, setting: Setting) -> Component | str:
    """The worst moment inside of a layer while the prompt goes through; a reason where it cannot be known."""
    inputs = _inputs(facts, setting)
    if isinstance(inputs, str):
        return inputs
    made = [_activations(_MLP, inputs, facts)]
    if setting.attention == "eager":
        is_grouped = facts.kv_heads.value != facts.attention_heads.value
        why = "rule:keys and values are repeated for every query head of a group"
        made.append(_activations(_EAGER, inputs | {"query_copies": given(3 if is_grouped else 1, why)}, facts))
    routed = _routed_inputs(facts)
    if routed:
        made.append(_activations(_EXPERTS, inputs | routed, facts, source=_ROUTED))
    return max(made, key=lambda part: part.bytes)


def matrix_activations(facts: ModelFacts, setting: Setting) -> Component | str:
    """What is alive beside the temporaries of one matrix product of the MLP."""
    inputs = _inputs(facts, setting)
    return inputs if isinstance(inputs, str) else _activations(_MATRIX, inputs, facts)


def decode_activations(facts: ModelFacts, setting: Setting, largest_layer_elements: int) -> Component | str:
    """Temporaries of one new token at the end of the text; a reason where they cannot be known."""
    inputs = _inputs(facts, setting)
    if isinstance(inputs, str):
        return inputs
    inputs |= {
        "new_tokens": setting.new_tokens,
        "kv_bits": setting.kv_bits,
        "largest_layer_elements": given(
            largest_layer_elements, "keys and values of a token in the layer that keeps most"
        ),
    }
    return _activations(_DECODE, inputs, facts)


def logits(facts: ModelFacts, setting: Setting, *, of_prompt: bool) -> Component | str | None:
    """What the head makes of the last token, or of the whole prompt where the release does so; ``None`` for models without a next token."""
    if facts.family in ("encoder", "other"):
        return None
    vocab_size = known(facts.vocab_size)
    if vocab_size is None:
        return f"vocab_size is not known: {facts.vocab_size.where}"
    inputs = {"batch_size": setting.batch_size, "vocab_size": vocab_size, "dtype_bits": setting.dtype_bits}
    hidden_size = known(facts.hidden_size)
    if of_prompt and setting.release.all_logits and hidden_size is not None:
        inputs |= {"prompt_tokens": setting.prompt_tokens, "hidden_size": hidden_size}
        return component(
            "logits",
            "Activation",
            _ALL_LOGITS,
            inputs,
            exactness="formula",
            source=setting.release.source,
            band_percent=_TRACED_PERCENT,
        )
    return component(
        "logits", "Activation", _LOGITS, inputs, exactness="formula", source=_LOGITS_SOURCE, band_percent=(50, 50)
    )


def _inputs(facts: ModelFacts, setting: Setting) -> dict[str, Input] | str:
    inputs = {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "dtype_bits": setting.dtype_bits,
    }
    for name, fact in (
        ("hidden_size", facts.hidden_size),
        ("intermediate_size", facts.intermediate_size),
        ("head_dim", facts.head_dim),
        ("attention_heads", facts.attention_heads),
    ):
        value = known(fact)
        if value is None:
            return f"{name} is not known: {fact.where}"
        inputs[name] = value
    return inputs


def _routed_inputs(facts: ModelFacts) -> dict[str, Input] | None:
    if facts.moe is None:
        return None
    per_token, width = known(facts.moe.experts_per_token), known(facts.moe.expert_intermediate_size)
    if per_token is None or width is None:
        return None
    return {"experts_per_token": per_token, "expert_intermediate_size": width}


def _activations(formula: str, inputs: dict[str, Input], facts: ModelFacts, source: str | None = None) -> Component:
    is_traced = facts.model_type in _TRACED_TYPES and facts.moe is None
    return component(
        "activations",
        "Activation",
        formula,
        inputs,
        exactness="formula",
        source=source or (_TRACED if is_traced else _UNTRACED),
        band_percent=_TRACED_PERCENT if is_traced else _UNTRACED_PERCENT,
    )
