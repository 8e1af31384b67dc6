"""Bytes that the layers keep between tokens: the KV cache, cross-attention caches and recurrent states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, short_name
from hubaudit.estimate.component import Input, component, given

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.estimate.setting import Setting
    from hubaudit.types import CacheTensor, Component, LayerSpec, ModelFacts

_TEXTBOOK = "2 * layers * kv_heads * head_dim * batch_size * (prompt_tokens + new_tokens) * kv_bits // 8"
_SOURCE = "what the cache classes of transformers 5.23.0 (cache_utils.py) hold after the last new token, rounded up by one token"


def cache_components(facts: ModelFacts, setting: Setting) -> tuple[Component, ...]:
    """What the layers keep for the whole workload: nothing for an encoder, and nothing at all where the plan is unknown."""
    owned = [tensor for layer in facts.layer_plan or () if layer.shares_cache_with is None for tensor in layer.tensors]
    growing = [tensor for tensor in owned if tensor.elements_per_token]
    crossing = [tensor for tensor in growing if tensor.grows_with == "encoder_tokens"]
    parts = (
        _textbook(facts, setting)
        or _growing("kv_cache", [tensor for tensor in growing if tensor not in crossing], setting, facts),
        _growing("cross_cache", crossing, setting, facts),
        _fixed(owned, setting, facts),
    )
    return tuple(part for part in parts if part is not None)


def _base_inputs(setting: Setting) -> dict[str, Input]:
    return {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "new_tokens": setting.new_tokens,
        "encoder_tokens": setting.encoder_tokens,
        "kv_bits": setting.kv_bits,
    }


def _textbook(facts: ModelFacts, setting: Setting) -> Component | None:
    """The formula that everyone knows, for the models that it is true of: every layer keeps kv_heads × head_dim keys and values."""
    plan, kv_heads, head_dim = facts.layer_plan, facts.kv_heads, facts.head_dim
    if not plan or kv_heads.value is None or head_dim.value is None or facts.family == "encoder-decoder":
        return None
    width = kv_heads.value * head_dim.value
    if not all(_is_plain(layer, width) for layer in plan):
        return None
    inputs = {
        "layers": given(len(plan), facts.layers.where),
        "kv_heads": given(kv_heads.value, kv_heads.where),
        "head_dim": given(head_dim.value, head_dim.where),
    } | _base_inputs(setting)
    return component("kv_cache", "KVCache", _TEXTBOOK, inputs, exactness="exact", source=_SOURCE)


def _is_plain(layer: LayerSpec, width: int) -> bool:
    return (
        layer.shares_cache_with is None
        and [tensor.name for tensor in layer.tensors] == ["keys", "values"]
        and all(tensor == type(tensor)(name=tensor.name, elements_per_token=width) for tensor in layer.tensors)
    )


@dataclass(frozen=True, slots=True)
class _Growth:
    """How one kind of entry grows: with what, up to which window, one for how many tokens, in which width."""

    grows_with: str
    window_tokens: int | None
    tokens_per_entry: int
    unfinished: bool
    dtype: str | None

    @property
    def label(self) -> str:
        """The start of the input's name in the formula."""
        words = ["full" if self.window_tokens is None else f"window_{self.window_tokens}"]
        words += [self.grows_with.removesuffix("_tokens")] if self.grows_with != "tokens" else []
        words += [f"per_{self.tokens_per_entry}"] if self.tokens_per_entry != 1 else []
        words += ["unfinished"] if self.unfinished else []
        words += [short_name(self.dtype)] if self.dtype is not None else []
        return "_".join(words)

    def kept(self, counted: str) -> str:
        """The entries kept, as a formula over what they grow with."""
        if self.unfinished:
            entries = f"({counted} - {counted} // {self.tokens_per_entry} * {self.tokens_per_entry})"
        else:
            entries = counted if self.tokens_per_entry == 1 else f"({counted} // {self.tokens_per_entry})"
        return entries if self.window_tokens is None else f"min({entries}, {self.window_tokens})"


def _growing(id: str, tensors: Iterable[CacheTensor], setting: Setting, facts: ModelFacts) -> Component | None:
    """Entries that come with the tokens, added up over the layers: one term for each way of growing."""
    sums: Counter[_Growth] = Counter()
    for tensor in tensors:
        growth = _Growth(
            tensor.grows_with, tensor.window_tokens, tensor.tokens_per_entry, tensor.unfinished, tensor.dtype
        )
        sums[growth] += tensor.elements_per_token
    if not sums:
        return None
    inputs = _base_inputs(setting)
    terms = []
    for growth, elements in sorted(sums.items(), key=lambda item: item[0].label):
        inputs[f"{growth.label}_elements"] = given(
            elements, f"elements an entry over all layers ({_plan_where(facts)})"
        )
        bits = "kv_bits" if growth.dtype is None else str(bits_of()[growth.dtype])
        terms.append(f"{growth.label}_elements * {growth.kept(_counted(growth.grows_with, facts))} * {bits}")
    formula = f"batch_size * ({' + '.join(terms)}) // 8"
    return component(id, "KVCache", formula, inputs, exactness="exact", source=_SOURCE)


def _counted(grows_with: str, facts: ModelFacts) -> str:
    """The tokens that entries are counted in. A decoder behind an encoder sees the generated tokens only."""
    if grows_with != "tokens":
        return grows_with
    return "new_tokens" if facts.family == "encoder-decoder" else "(prompt_tokens + new_tokens)"


def _fixed(owned: list[CacheTensor], setting: Setting, facts: ModelFacts) -> Component | None:
    """States whose size does not depend on the tokens."""
    sums: Counter[int] = Counter()
    for tensor in owned:
        if tensor.fixed_elements:
            sums[setting.kv_bits.value if tensor.dtype is None else bits_of()[tensor.dtype]] += tensor.fixed_elements
    if not sums:
        return None
    inputs: dict[str, Input] = {"batch_size": setting.batch_size}
    terms = []
    for width, elements in sorted(sums.items()):
        inputs[f"state_elements_{width}_bit"] = given(elements, f"over all layers ({_plan_where(facts)})")
        terms.append(f"state_elements_{width}_bit * {width}")
    formula = f"batch_size * ({' + '.join(terms)}) // 8"
    return component("recurrent_state", "KVCache", formula, inputs, exactness="exact", source=_SOURCE)


def _plan_where(facts: ModelFacts) -> str:
    places = dict.fromkeys(layer.where for layer in facts.layer_plan or ())
    return "; ".join(list(places)[:2])
