"""Bytes that the layers keep between tokens under transformers: the KV cache, cross-attention caches and recurrent states.

The default cache, which grows with the tokens. The terms of its formula serve the other caches of the library too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, short_name
from hubaudit.estimate.component import Input, component, given
from hubaudit.types import CacheTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, LayerSpec, ModelFacts

_TEXTBOOK = "2 * layers * kv_heads * head_dim * batch_size * (prompt_tokens + new_tokens) * kv_bits // 8"
_SOURCE = "what the cache classes of transformers 5.23.0 (cache_utils.py) hold after the last new token, rounded up by one token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """How many tokens each kind of entry is counted in: a formula for each word of ``CacheTensor.grows_with``, and its further inputs."""

    formulas: Mapping[str, str]
    source: str = _SOURCE
    inputs: Mapping[str, Input] = field(default_factory=dict)


def cache_components(facts: ModelFacts, setting: Setting) -> tuple[Component, ...]:
    """What the layers keep for the whole workload: nothing for an encoder, and nothing at all where the plan is unknown."""
    owned = owned_tensors(facts.layer_plan or ())
    counting = as_they_come(facts)
    parts = (
        _textbook(facts, setting) or grown("kv_cache", _growing(owned), counting, setting, facts),
        grown("cross_cache", _crossing(owned), counting, setting, facts),
        states(owned, setting, facts),
    )
    return tuple(part for part in parts if part is not None)


def owned_tensors(plan: Iterable[LayerSpec]) -> list[CacheTensor]:
    """All tensors of the layers that do not read another's."""
    return [tensor for layer in plan if layer.shares_cache_with is None for tensor in layer.tensors]


def as_they_come(facts: ModelFacts) -> Counting:
    """Entries of a growing cache. A decoder behind an encoder sees the generated tokens only."""
    tokens = "new_tokens" if facts.family == "encoder-decoder" else "(prompt_tokens + new_tokens)"
    words = ("prompt_tokens", "new_tokens", "encoder_tokens")
    return Counting(formulas={"tokens": tokens, **{word: word for word in words}})


def _growing(owned: list[CacheTensor]) -> list[CacheTensor]:
    return [tensor for tensor in owned if tensor.elements_per_token and tensor.grows_with != "encoder_tokens"]


def _crossing(owned: list[CacheTensor]) -> list[CacheTensor]:
    return [tensor for tensor in owned if tensor.elements_per_token and tensor.grows_with == "encoder_tokens"]


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
    plain = tuple(CacheTensor(name=name, elements_per_token=width) for name in ("keys", "values"))
    if any(layer.shares_cache_with is not None or layer.tensors != plain for layer in plan):
        return None
    inputs = {
        "layers": given(len(plan), facts.layers.where),
        "kv_heads": given(kv_heads.value, kv_heads.where),
        "head_dim": given(head_dim.value, head_dim.where),
    } | _base_inputs(setting)
    return component("kv_cache", "KVCache", _TEXTBOOK, inputs, exactness="exact", source=_SOURCE)


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


def grown(
    id: str, tensors: Iterable[CacheTensor], counting: Counting, setting: Setting, facts: ModelFacts
) -> Component | None:
    """Entries that come with the tokens, added up over the layers: one term for each way of growing. ``None`` where there are none."""
    sums: Counter[_Growth] = Counter()
    for tensor in tensors:
        growth = _Growth(
            tensor.grows_with, tensor.window_tokens, tensor.tokens_per_entry, tensor.unfinished, tensor.dtype
        )
        sums[growth] += tensor.elements_per_token
    if not sums:
        return None
    inputs = {**_base_inputs(setting), **counting.inputs}
    terms = []
    for growth, elements in sorted(sums.items(), key=lambda item: item[0].label):
        inputs[f"{growth.label}_elements"] = given(elements, f"elements an entry over all layers ({plan_where(facts)})")
        bits = "kv_bits" if growth.dtype is None else str(bits_of()[growth.dtype])
        terms.append(f"{growth.label}_elements * {growth.kept(counting.formulas[growth.grows_with])} * {bits}")
    formula = f"batch_size * ({' + '.join(terms)}) // 8"
    return component(id, "KVCache", formula, inputs, exactness="exact", source=counting.source)


def states(owned: Iterable[CacheTensor], setting: Setting, facts: ModelFacts) -> Component | None:
    """States whose size does not depend on the tokens; ``None`` where there are none."""
    sums: Counter[int] = Counter()
    for tensor in owned:
        if tensor.fixed_elements:
            width = setting.dtype_bits.value if tensor.dtype is None else bits_of()[tensor.dtype]
            sums[width] += tensor.fixed_elements
    if not sums:
        return None
    inputs: dict[str, Input] = {"batch_size": setting.batch_size}
    terms = []
    for width, elements in sorted(sums.items()):
        inputs[f"state_elements_{width}_bit"] = given(elements, f"over all layers ({plan_where(facts)})")
        terms.append(f"state_elements_{width}_bit * {width}")
    formula = f"batch_size * ({' + '.join(terms)}) // 8"
    return component("recurrent_state", "KVCache", formula, inputs, exactness="exact", source=_SOURCE)


def plan_where(facts: ModelFacts) -> str:
    """Where the layer plan was read, in at most two places."""
    places = dict.fromkeys(layer.where for layer in facts.layer_plan or ())
    return "; ".join(list(places)[:2])
