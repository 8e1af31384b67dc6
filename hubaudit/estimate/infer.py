"""Inference, and the KV cache alone: which components a workload needs, and their sum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, short_name
from hubaudit.errors import UsageError
from hubaudit.estimate.activations import forward_components
from hubaudit.estimate.cache import cache_components
from hubaudit.estimate.overhead import cuda_context, workspace
from hubaudit.estimate.setting import Setting, settle
from hubaudit.estimate.weights import weights_as_stored, weights_in, weights_quantized
from hubaudit.types import Component, Estimate, Omission, Variant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.types import ModelFacts, Workload

_VARIANTS = (("F32", None), ("BF16", None), ("F16", None), ("BF16", "int8"), ("BF16", "nf4"))
_QUANT_BITS = {"int8": 8, "nf4": 4, "fp4": 4}
_KEPT_NOTE = (
    "bitsandbytes keeps embeddings, head, norms, biases, routers and fused experts in the load dtype, and adds scales"
)


def estimate(facts: ModelFacts, workload: Workload) -> Estimate:
    """Memory for ``workload``: the sum of what lives on the device at once, each part with its formula and band.

    A part that cannot be known is left out with a reason in ``omitted``; the total is then that of the known parts.

    Raises:
        UsageError: the workload asks for something that does not exist.
    """
    setting = settle(facts, workload)
    if workload.mode == "train":
        raise UsageError("training is not estimated yet", hint="use --mode infer or --mode kv")
    parts, omitted = _kv(facts, setting)
    if workload.mode == "infer":
        weights = _weights(facts, setting)
        forward, forward_omitted = forward_components(facts, setting)
        parts = ((weights,) if isinstance(weights, Component) else ()) + parts + forward + (workspace(), cuda_context())
        omitted = ((weights,) if isinstance(weights, Omission) else ()) + omitted + forward_omitted
    return _summed(parts, omitted, setting)


def variants(facts: ModelFacts, workload: Workload) -> tuple[Variant, ...]:
    """The same workload with the model loaded as fp32, bf16 and fp16, and by bitsandbytes as int8 and 4 bit.

    ``plain_bytes`` is bits × parameters, as people reckon; ``weights_bytes`` is what the loader really makes of them.
    """
    if workload.mode != "infer" or facts.parameters is None or facts.quantization is not None:
        return ()
    return tuple(_variant(facts, facts.parameters.loaded, workload, dtype, quant) for dtype, quant in _VARIANTS)


def _variant(facts: ModelFacts, parameters: int, workload: Workload, dtype: str, quant: str | None) -> Variant:
    made = estimate(facts, replace(workload, dtype=dtype, quant=quant))
    return Variant(
        dtype=short_name(dtype),
        quant=quant,
        plain_bytes=parameters * (_QUANT_BITS[quant] if quant else bits_of()[dtype]) // 8,
        weights_bytes=next(part.bytes for part in made.components if part.id == "weights"),
        total_bytes=made.total_bytes,
        note=_KEPT_NOTE if quant else None,
    )


def _weights(facts: ModelFacts, setting: Setting) -> Component | Omission:
    is_packed = facts.quantization is not None and facts.stored_bytes is not None
    if setting.quant is not None and is_packed:
        raise UsageError(
            f"the weights are already quantized ({facts.quantization.method if facts.quantization else ''})",
            hint="leave out --quant",
        )
    if is_packed:
        made = weights_as_stored(facts)
    elif setting.quant is not None:
        made = weights_quantized(facts, setting.quant, setting.dtype_bits)
    else:
        made = weights_in(facts, setting.dtype, setting.dtype_bits)
    return made or Omission(id="weights", reason=facts.parameters_reason or "no tensors are known")


def _kv(facts: ModelFacts, setting: Setting) -> tuple[tuple[Component, ...], tuple[Omission, ...]]:
    if facts.layer_plan is None:
        return (), (Omission(id="kv_cache", reason=facts.layer_plan_reason or "the cache's layout is not known"),)
    return cache_components(facts, setting), ()


def _summed(parts: Iterable[Component], omitted: tuple[Omission, ...], setting: Setting) -> Estimate:
    parts = tuple(parts)
    said = setting.assumptions
    if omitted:
        said = (*said, f"not in the total: {', '.join(part.id for part in omitted)}")
    return Estimate(
        fidelity="formula",
        components=parts,
        total_bytes=sum(part.bytes for part in parts),
        low_bytes=sum(part.low_bytes for part in parts),
        high_bytes=sum(part.high_bytes for part in parts),
        assumptions=said,
        omitted=omitted,
    )
