"""Bytes that the layers keep between tokens: the KV cache and recurrent states."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.component import Input, component, given

if TYPE_CHECKING:
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import CacheTensor, Component, LayerSpec, ModelFacts

_TEXTBOOK = "2 * layers * kv_heads * head_dim * batch_size * (prompt_tokens + new_tokens) * kv_bits // 8"
_TRANSFORMERS = "transformers 5.23.0 cache_utils.py: one key and one value of every kept token in every layer"


def cache_components(facts: ModelFacts, setting: Setting) -> tuple[Component, ...]:
    """What the layers keep for the whole workload: nothing for an encoder, and nothing at all where the plan is unknown."""
    owned = [tensor for layer in facts.layer_plan or () if layer.shares_cache_with is None for tensor in layer.tensors]
    parts = (_textbook(facts, setting) or _growing(owned, setting, facts), _fixed(owned, setting, facts))
    return tuple(part for part in parts if part is not None)


def _base_inputs(setting: Setting) -> dict[str, Input]:
    return {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "new_tokens": setting.new_tokens,
        "kv_bits": setting.kv_bits,
    }


def _textbook(facts: ModelFacts, setting: Setting) -> Component | None:
    """The formula that everyone knows, for the models that it is true of: every layer keeps kv_heads × head_dim keys and values."""
    plan, kv_heads, head_dim = facts.layer_plan, facts.kv_heads, facts.head_dim
    if not plan or kv_heads.value is None or head_dim.value is None:
        return None
    width = kv_heads.value * head_dim.value
    if not all(_is_plain(layer, width) for layer in plan):
        return None
    inputs = {
        "layers": given(len(plan), facts.layers.where),
        "kv_heads": given(kv_heads.value, kv_heads.where),
        "head_dim": given(head_dim.value, head_dim.where),
    } | _base_inputs(setting)
    return component("kv_cache", "KVCache", _TEXTBOOK, inputs, exactness="exact", source=_TRANSFORMERS)


def _is_plain(layer: LayerSpec, width: int) -> bool:
    return (
        layer.shares_cache_with is None
        and [tensor.name for tensor in layer.tensors] == ["key", "value"]
        and all(tensor == type(tensor)(name=tensor.name, elements_per_token=width) for tensor in layer.tensors)
    )


def _growing(owned: list[CacheTensor], setting: Setting, facts: ModelFacts) -> Component | None:
    """Entries that come with the tokens, added up over the layers: one term for each window and each rate of compression."""
    sums: Counter[tuple[int | None, int]] = Counter()
    for tensor in owned:
        if tensor.elements_per_token and tensor.dtype is None:
            sums[tensor.window_tokens, tensor.tokens_per_entry] += tensor.elements_per_token
    if not sums:
        return None
    inputs = _base_inputs(setting)
    terms = []
    for (window, rate), elements in sorted(sums.items(), key=lambda item: (item[0][0] or 0, item[0][1])):
        label = "full" if window is None else f"window_{window}"
        label += "" if rate == 1 else f"_per_{rate}"
        inputs[f"{label}_elements"] = given(elements, f"elements a token over all layers ({_plan_where(facts)})")
        kept = "(prompt_tokens + new_tokens)" if rate == 1 else f"((prompt_tokens + new_tokens) // {rate})"
        terms.append(f"{label}_elements * " + (kept if window is None else f"min({kept}, {window})"))
    formula = f"batch_size * ({' + '.join(terms)}) * kv_bits // 8"
    return component("kv_cache", "KVCache", formula, inputs, exactness="exact", source=_TRANSFORMERS)


def _fixed(owned: list[CacheTensor], setting: Setting, facts: ModelFacts) -> Component | None:
    """States whose size does not depend on the tokens."""
    bits: Counter[int] = Counter()
    for tensor in owned:
        if tensor.fixed_elements:
            width = setting.kv_bits.value if tensor.dtype is None else bits_of()[tensor.dtype]
            bits[width] += tensor.fixed_elements
    if not bits:
        return None
    inputs: dict[str, Input] = {"batch_size": setting.batch_size}
    terms = []
    for width, elements in sorted(bits.items()):
        inputs[f"state_elements_{width}_bit"] = given(elements, f"over all layers ({_plan_where(facts)})")
        terms.append(f"state_elements_{width}_bit * {width}")
    formula = f"batch_size * ({' + '.join(terms)}) // 8"
    return component("recurrent_state", "KVCache", formula, inputs, exactness="exact", source=_TRANSFORMERS)


def _plan_where(facts: ModelFacts) -> str:
    places = dict.fromkeys(layer.where for layer in facts.layer_plan or ())
    return "; ".join(list(places)[:2])
