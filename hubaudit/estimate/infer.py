"""Inference, and the KV cache alone: which components a workload needs, and their sum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, short_name
from hubaudit.errors import UsageError
from hubaudit.estimate.component import Parts
from hubaudit.estimate.runtimes import RUNTIMES
from hubaudit.estimate.setting import Setting, settle
from hubaudit.estimate.weights import weights_as_stored, weights_in, weights_quantized
from hubaudit.types import Estimate, Omission, Variant

if TYPE_CHECKING:
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
    if workload.mode == "kv":
        return _summed(_cache(facts, setting), setting)
    beside = RUNTIMES[setting.runtime].beside(facts, setting)
    return _summed(_weights(facts, setting) + _cache(facts, setting) + beside, setting)


def variants(facts: ModelFacts, workload: Workload) -> tuple[Variant, ...]:
    """The same workload with the model loaded as fp32, bf16 and fp16, and by bitsandbytes as int8 and 4 bit.

    ``plain_bytes`` is bits × parameters, as people reckon; ``weights_bytes`` is what the loader really makes of them.
    """
    if workload.mode != "infer" or facts.parameters is None or facts.quantization is not None:
        return ()
    if workload.runtime != "transformers":
        return ()  # each engine has its own ways to quantize
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


def _weights(facts: ModelFacts, setting: Setting) -> Parts:
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
    if made is None:
        return Parts(omitted=(Omission(id="weights", reason=facts.parameters_reason or "no tensors are known"),))
    return Parts(components=(RUNTIMES[setting.runtime].loaded(facts, made),))


def _cache(facts: ModelFacts, setting: Setting) -> Parts:
    if facts.layer_plan is None:
        reason = facts.layer_plan_reason or "the cache's layout is not known"
        return Parts(omitted=(Omission(id="kv_cache", reason=reason),))
    return RUNTIMES[setting.runtime].cache(facts, setting)


def _summed(parts: Parts, setting: Setting) -> Estimate:
    said = (*setting.assumptions, *parts.assumptions)
    if parts.omitted:
        said = (*said, f"not in the total: {', '.join(part.id for part in parts.omitted)}")
    return Estimate(
        fidelity="formula",
        components=parts.components,
        total_bytes=sum(part.bytes for part in parts.components),
        low_bytes=sum(part.low_bytes for part in parts.components),
        high_bytes=sum(part.high_bytes for part in parts.components),
        assumptions=said,
        omitted=parts.omitted,
    )
