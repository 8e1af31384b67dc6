"""Inference, and the KV cache alone: which components a workload needs, and their sum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, short_name
from hubaudit.errors import UsageError
from hubaudit.estimate.buffers import made_buffers
from hubaudit.estimate.component import Parts
from hubaudit.estimate.conversion import bits_of_conversion, with_quant
from hubaudit.estimate.generation import estimate_generation
from hubaudit.estimate.parts import adapter_weights, is_pipeline, weights_of_parts
from hubaudit.estimate.quantized_weights import split, weights_quantized
from hubaudit.estimate.runtimes import RUNTIMES
from hubaudit.estimate.setting import Setting, settle
from hubaudit.estimate.weights import weights_as_stored, weights_in, weights_unpacked
from hubaudit.facts.loading import stays_packed, unread_packing
from hubaudit.facts.packed_loading import holding_of
from hubaudit.types import Estimate, Omission, Variant
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from hubaudit.estimate.quantized_weights import Split
    from hubaudit.types import ModelFacts, Workload

_VARIANTS = (("F32", None), ("BF16", None), ("F16", None), ("BF16", "int8"), ("BF16", "nf4"))
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
    found = _converted(facts, setting)
    weights = _weights(facts, setting, found) + _adapter(facts, setting)
    if setting.runtime == "transformers":
        standing = weights + made_buffers(facts, setting.dtype_bits)
        return estimate_generation(facts, setting, standing, _running(facts, setting), found)
    beside = RUNTIMES[setting.runtime].beside(facts, setting)
    return _summed(weights + _cache(facts, setting) + beside, setting)


def weights_high_bytes(facts: ModelFacts, workload: Workload) -> int:
    """The upper end for the weights alone, below which no upper end of :func:`estimate` is; 0 where they are not known or not asked for.

    Raises:
        UsageError: as :func:`estimate`.
    """
    if workload.mode == "kv":
        return 0
    setting = settle(facts, workload)
    return sum(part.high_bytes for part in _weights(facts, setting, _converted(facts, setting)).components)


def variants(facts: ModelFacts, workload: Workload) -> tuple[Variant, ...]:
    """The same workload with the model loaded as fp32, bf16 and fp16, and by bitsandbytes as int8 and 4 bit.

    ``plain_bytes`` is bits × parameters, as people reckon; ``weights_bytes`` is what the loader really makes of them.
    """
    if workload.mode != "infer" or facts.parameters is None or unread_packing(facts) or stays_packed(facts):
        return ()
    if workload.runtime != "transformers":
        return ()  # each engine has its own ways to quantize
    wanted = [row for row in _VARIANTS if row[1] is None or not is_pipeline(facts)]
    made = (_variant(facts, facts.parameters.loaded, workload, dtype, quant) for dtype, quant in wanted)
    return tuple(variant for variant in made if variant is not None)


def _variant(facts: ModelFacts, parameters: int, workload: Workload, dtype: str, quant: str | None) -> Variant | None:
    made = estimate(facts, with_quant(replace(workload, dtype=dtype), quant))
    if not any(part.id == "weights" for part in made.components):
        return None
    return Variant(
        dtype=short_name(dtype),
        quant=quant,
        plain_bytes=parameters * (bits_of_conversion(quant) if quant else bits_of()[dtype]) // 8,
        weights_bytes=next(part.bytes for part in made.components if part.id == "weights"),
        total_bytes=made.total_bytes,
        note=_KEPT_NOTE if quant else None,
    )


def _converted(facts: ModelFacts, setting: Setting) -> Split | None:
    """What ``--quant`` converts; ``None`` without it, and where no tensors are known."""
    if setting.conversion is None:
        return None
    if stays_packed(facts):
        raise UsageError(
            f"the weights are already quantized ({facts.quantization.method if facts.quantization else ''})",
            hint="leave out --quant",
        )
    if is_pipeline(facts):
        raise UsageError(
            "what --quant makes of a pipeline's parts is not estimated",
            hint="audit a part by itself: --file FOLDER/NAME",
        )
    return split(facts, setting.conversion, setting.dtype)


def _weights(facts: ModelFacts, setting: Setting, found: Split | None) -> Parts:
    unread = unread_packing(facts)
    if unread is not None and setting.conversion is None:
        return Parts(omitted=(Omission(id="weights", reason=unread),))
    if is_pipeline(facts):
        made = weights_of_parts(facts, setting.dtype if setting.dtype_bits.where == "workload" else None)
    elif stays_packed(facts):
        made = weights_as_stored(facts, setting.dtype, setting.dtype_bits)
    elif setting.conversion is not None:
        made = weights_quantized(found, setting.conversion, setting.dtype_bits)
    else:
        made = weights_in(facts, setting.dtype, setting.dtype_bits)
    if made is None:
        reason = facts.parameters_reason or facts.layer_plan_reason or "no tensors are known"
        return Parts(omitted=(Omission(id="weights", reason=reason),))
    return Parts(components=(RUNTIMES[setting.runtime].loaded(facts, made),))


def _running(facts: ModelFacts, setting: Setting) -> Parts:
    """The weights from the first pass on, where the method's loader unpacks them until then, and what there is to say of packed weights."""
    holding = holding_of(facts)
    if holding is None or is_pipeline(facts) or facts.quantization is None or unread_packing(facts) is not None:
        return Parts()
    packed = weights_as_stored(facts, setting.dtype, setting.dtype_bits)
    if packed is None:
        return Parts()
    method = facts.quantization.method
    if holding.held == "refused":
        said = f"transformers 5.23 does not load {method} checkpoints: weights as an engine holds them that keeps them as stored"
        return Parts(assumptions=(said,))
    if holding.held == "packed":
        if holding.where is None or facts.parameters is None:
            return Parts()
        plain = format_bytes(facts.parameters.loaded * setting.dtype_bits.value // 8)
        said = f"{method} weights stay packed {holding.where}; elsewhere transformers 5.23 unpacks them to {plain}"
        return Parts(assumptions=(said,))
    unpacked = weights_unpacked(facts, setting.dtype, setting.dtype_bits)
    said = (
        f"{holding.note}, under transformers 5.23: {format_bytes(packed.bytes)} become "
        f"{'an unknown size' if unpacked is None else format_bytes(unpacked.bytes)}; "
        "an engine with kernels for them, such as --runtime vllm, keeps them packed"
    )
    return Parts(components=() if unpacked is None else (unpacked,), assumptions=(said,))


def _adapter(facts: ModelFacts, setting: Setting) -> Parts:
    made = adapter_weights(facts, setting.dtype_bits)
    return Parts() if made is None else Parts(components=(made,))


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
