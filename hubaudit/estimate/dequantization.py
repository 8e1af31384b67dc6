"""Temporaries of quantized layers: while the model is loaded, and while a prompt is multiplied with packed weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.component import component, given, known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.estimate.component import Input
    from hubaudit.estimate.conversion import Conversion
    from hubaudit.estimate.quantized_weights import Split
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts

#: A 4-bit layer takes its input in the compute dtype, unpacks its weight into that and multiplies; with the weight gone, the product in the model's dtype.
_FOUR_BIT = (
    "batch_size * prompt_tokens * (read_size * casts + made_size) * compute_bits // 8"
    " + max(largest_elements * compute_bits, batch_size * prompt_tokens * made_size * dtype_bits * casts) // 8"
)
#: LLM.int8(): the input in 8 bit with a scale a token, the product in int32 and in fp16, and in the model's dtype where that is another.
_INT8 = "batch_size * prompt_tokens * (read_size + 4 + 6 * made_size + casts * made_size * dtype_bits // 8)"
#: Up to so many tokens bitsandbytes multiplies with packed weights; beyond, that depends on the GPU.
_PACKED_TOKENS = 4
_SOURCE = "bitsandbytes 0.50.2, backends/cuda/ops.py (gemm_4bit: dequantize and multiply; int8_linear_matmul, int8_mm_dequant), nn/modules.py"
_LOADING = "transformers 5.23.0, integrations/bitsandbytes.py: a weight lies on the device in the load dtype until it is quantized"


def matrix_temporaries(facts: ModelFacts, setting: Setting, found: Split | None) -> Iterator[tuple[str, Component]]:
    """What a product of the MLP takes under bitsandbytes, for one that reads the stream and for the last; none of other methods.

    Each with ``in`` or ``out``, which of the two it is; none where widths are not known. ``found`` is what the method converts. The lower end
    is that of a kernel that never unpacks.
    """
    conversion = setting.conversion
    hidden, inner = known(facts.hidden_size), known(facts.intermediate_size)
    if conversion is None or conversion.method != "bitsandbytes" or hidden is None or inner is None:
        return
    for which, read, made in (("in", hidden, inner), ("out", inner, hidden)):
        inputs = {
            "batch_size": setting.batch_size,
            "prompt_tokens": setting.prompt_tokens,
            "read_size": read,
            "made_size": made,
            "dtype_bits": setting.dtype_bits,
        }
        part = _product(setting, conversion, inputs, found)
        if part is not None:
            yield which, part


def _product(
    setting: Setting, conversion: Conversion, inputs: dict[str, Input], found: Split | None
) -> Component | None:
    compute = conversion.compute_dtype
    if compute is None:
        inputs["casts"] = given(int(setting.dtype != "F16"), "1 where the model's dtype is not fp16")
        return component("dequantization", "Workspace", _INT8, inputs, exactness="formula", source=_SOURCE)
    if found is None or not found.converted:
        return None
    unpacks = setting.batch_size.value * setting.prompt_tokens.value > _PACKED_TOKENS
    largest = max(weight.elements for weight in found.converted) if unpacks else 0
    inputs |= {
        "largest_elements": given(largest, "the largest converted weight; 0 for so few tokens that none is unpacked"),
        "compute_bits": given(bits_of()[compute], "workload: bnb_4bit_compute_dtype, float32 where not given"),
        "casts": given(int(setting.dtype != compute), "1 where the compute dtype is not the model's"),
    }
    made = component("dequantization", "Workspace", _FOUR_BIT, inputs, exactness="formula", source=_SOURCE)
    packed = inputs | {"largest_elements": given(0, "a kernel that never unpacks")}
    least = component("dequantization", "Workspace", _FOUR_BIT, packed, exactness="formula", source=_SOURCE)
    return replace(made, low_bytes=least.bytes)


def loading_temporaries(setting: Setting, found: Split | None) -> Component | None:
    """The largest weight before it is quantized, which lies beside all that was loaded; ``None`` where nothing is quantized on load."""
    conversion = setting.conversion
    if conversion is None or conversion.is_calibrated:
        return None
    if found is None or not found.converted:
        return None
    inputs = {
        "largest_elements": given(
            max(weight.elements for weight in found.converted), "the largest converted weight, before it is quantized"
        ),
        "dtype_bits": setting.dtype_bits,
        "copy_bits": given(16 if conversion.name == "int8" else 0, "LLM.int8() quantizes a copy in fp16"),
    }
    return component(
        "loading",
        "Workspace",
        "largest_elements * (dtype_bits + copy_bits) // 8",
        inputs,
        exactness="formula",
        source=_LOADING,
    )
