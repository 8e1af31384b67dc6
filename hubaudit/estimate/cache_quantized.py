"""transformers' quantized cache: packed keys and values with their scales, and a residue that is not packed yet."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.errors import UsageError
from hubaudit.estimate.cache import owned_tensors, plan_where
from hubaudit.estimate.component import Parts, component, given
from hubaudit.estimate.kv_dtype import TABLE

if TYPE_CHECKING:
    from hubaudit.estimate.component import Input
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts

_FLUSHED = "new_tokens // {residual} * {residual}"
_FP8_SOURCE = "transformers 5.23.0 cache_utils.py, Fp8QuantizedLayer: a byte a value, and one float32 scale a tensor"
_COPY_SOURCE = "transformers 5.23.0 cache_utils.py, QuantizedLayer.update: the layer's keys and values unpacked, and once more joined with the new ones"
_COPY = "2 * batch_size * (prompt_tokens + new_tokens) * widest_layer_elements * dtype_bits // 8"


def quantized_components(facts: ModelFacts, setting: Setting) -> Parts:
    """The cache at its largest, and what its use takes beside it.

    Raises:
        UsageError: the model is one that transformers refuses to quantize the cache of.
    """
    if not any(tensor.elements_per_token for tensor in owned_tensors(facts.layer_plan or ())):
        return Parts()
    _check(facts)
    cache = _fp8(facts, setting) if setting.kv.backend == "fp8" else _grouped(facts, setting)
    said = f"keys and values are quantized to {setting.kv.name} by the {setting.kv.backend} backend"
    return Parts(components=(cache, _unpacked_copy(facts, setting)), assumptions=(said,))


def _check(facts: ModelFacts) -> None:
    plan = facts.layer_plan or ()
    kinds = {layer.kind for layer in plan}
    if facts.family == "encoder-decoder" or not plan or not kinds <= {"full", "mla"}:
        others = ", ".join(sorted(kinds - {"full", "mla"})) or facts.family
        raise UsageError(
            f"transformers quantizes the cache of decoders with full attention in every layer, not of {others}",
            hint="--runtime vllm and llama.cpp have 8-bit caches for more models",
        )


def _grouped(facts: ModelFacts, setting: Setting) -> Component:
    """Groups of values with a scale and a zero point each; what came since the last packing stays in the compute dtype.

    The residue is packed when it has reached its limit, so the cache is largest just before that, or at the end.
    """
    row = table(TABLE)["quantized_cache"]
    residual, group = row["residual_tokens"], row["group_elements"]
    flushed = _FLUSHED.format(residual=residual)
    widths = _widths(facts)
    inputs = _inputs(setting)
    for width, count in widths.items():
        inputs[f"tensors_of_{width}"] = given(count, f"tensors of {width} elements a token ({plan_where(facts)})")

    def held(packed_tokens: str, whole_tokens: str) -> str:
        terms = []
        for width in widths:
            groups = f"ceil_div(batch_size * ({packed_tokens}) * {width}, {group})"
            packed = f"{group} * ceil_div({groups} * kv_bits, 8) + 2 * {groups} * dtype_bits // 8"
            terms.append(f"tensors_of_{width} * ({packed} + batch_size * ({whole_tokens}) * {width} * dtype_bits // 8)")
        return " + ".join(terms)

    last = held(f"prompt_tokens + {flushed}", f"new_tokens - {flushed}")
    before = held(f"prompt_tokens + max({flushed} - {residual}, 0)", f"min({flushed}, {residual - 1})")
    source = f"{row['source']}; equal to the real classes with optimum-quanto 0.2.7 and hqq 0.2.8"
    return component("kv_cache", "KVCache", f"max({last}, {before})", inputs, exactness="exact", source=source)


def _fp8(facts: ModelFacts, setting: Setting) -> Component:
    tensors = owned_tensors(facts.layer_plan or ())
    inputs = _inputs(setting) | {
        "elements": given(sum(tensor.elements_per_token for tensor in tensors), f"a token ({plan_where(facts)})"),
        "tensors": given(len(tensors), "keys and values of every layer"),
    }
    formula = "batch_size * (prompt_tokens + new_tokens) * elements + 4 * tensors"
    return component("kv_cache", "KVCache", formula, inputs, exactness="exact", source=_FP8_SOURCE)


def _unpacked_copy(facts: ModelFacts, setting: Setting) -> Component:
    """One layer at a time is unpacked; how much of that lives at the peak is not known, so it may be nothing."""
    widest = max(
        sum(tensor.elements_per_token for tensor in layer.tensors)
        for layer in facts.layer_plan or ()
        if layer.shares_cache_with is None
    )
    inputs = _inputs(setting) | {"widest_layer_elements": given(widest, f"a token ({plan_where(facts)})")}
    return component(
        "cache_workspace",
        "Workspace",
        _COPY,
        inputs,
        exactness="bound",
        source=_COPY_SOURCE,
        band_percent=(100, 0),
    )


def _widths(facts: ModelFacts) -> Counter[int]:
    return Counter(tensor.elements_per_token for tensor in owned_tensors(facts.layer_plan or ()))


def _inputs(setting: Setting) -> dict[str, Input]:
    return {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "new_tokens": setting.new_tokens,
        "kv_bits": setting.kv_bits,
        "dtype_bits": setting.dtype_bits,
    }
