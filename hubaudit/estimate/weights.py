"""Bytes of the weights once loaded: in one dtype, as bitsandbytes holds them, or packed as the files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.data.dtypes import short_name
from hubaudit.estimate.component import component, given
from hubaudit.facts.loading import ADAPTER, converts, kept_in_float32

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.estimate.component import Input
    from hubaudit.types import Component, ModelFacts, TensorGroup

#: Roles whose matrices transformers leaves alone under bitsandbytes: `get_keys_to_not_convert` (output embedding, tied weights, last
#: module) and modules that are no nn.Linear (embeddings, routers, fused experts), transformers 5.23.0.
_KEPT_ROLES = ("embedding", "head", "router", "expert", "pooler")
_NF4_BLOCK = 64
_BNB = "bitsandbytes 0.50.2, functional.quantize_4bit and quantize_int8_rowwise; equal to real modules on the CPU"


def weights_in(facts: ModelFacts, dtype: str, bits: Input) -> Component | None:
    """All loaded parameters in one dtype: parameters × bits ÷ 8. Integer tensors keep their own bytes."""
    groups = _loaded(facts)
    if facts.parameters is None or not groups:
        return None
    kept = kept_in_float32(facts.architecture, dtype)
    inputs = {
        "parameters": given(
            _parameters(group for group in groups if converts(group) and not kept(group)), facts.parameters.where
        ),
        "bits": bits,
        "float32_parameters": given(
            _parameters(group for group in groups if converts(group) and kept(group)), "table:load_rules.json"
        ),
        "integer_bytes": given(_stored(group for group in groups if not converts(group)), facts.parameters.where),
    }
    formula = "parameters * bits // 8"
    formula += " + 4 * float32_parameters" if inputs["float32_parameters"].value else ""
    formula += " + integer_bytes" if inputs["integer_bytes"].value else ""
    source = f"every floating-point tensor loaded as {short_name(dtype)}, but those the model class keeps in fp32 (transformers 5.23.0)"
    return component("weights", "Parameter", formula, inputs, exactness="exact", source=source)


def weights_as_stored(facts: ModelFacts) -> Component | None:
    """The files' own tensors, as a packed checkpoint is loaded.

    No exact figure: a loader casts the tensors that are not packed to the load dtype, and unpacks all where it lacks the method's kernels.
    """
    if facts.stored_bytes is None or not _loaded(facts):
        return None
    inputs = {"stored_bytes": given(_stored(_loaded(facts)), "header:all tensors that are loaded")}
    return component(
        "weights",
        "Parameter",
        "stored_bytes",
        inputs,
        exactness="formula",
        source="bytes of the stored tensors, kept packed",
    )


def weights_quantized(facts: ModelFacts, quant: str, bits: Input) -> Component | None:
    """Linear layers as bitsandbytes holds them, all else in the load dtype.

    4 bit (nf4 and fp4 alike): two weights a byte, a float32 absmax for every 64, a table of 16 float32 for every tensor. int8: a byte a
    weight and a float32 scale for every row.
    """
    groups = _loaded(facts)
    if facts.parameters is None or not groups:
        return None
    converted = [group for group in groups if group.kind == "linear" and group.role not in _KEPT_ROLES]
    kept = [group for group in groups if group not in converted]
    inputs = {
        "kept_parameters": given(
            _parameters(group for group in kept if converts(group)),
            "embeddings, head, norms, biases, routers, experts",
        ),
        "kept_bits": bits,
        "integer_bytes": given(_stored(group for group in kept if not converts(group)), facts.parameters.where),
    }
    inputs |= _int8_inputs(converted) if quant == "int8" else _four_bit_inputs(converted)
    packed = (
        "int8_weights + 4 * rows" if quant == "int8" else "packed_bytes + 4 * absmax_blocks + 64 * quantized_tensors"
    )
    formula = f"kept_parameters * kept_bits // 8 + {packed}" + (
        " + integer_bytes" if inputs["integer_bytes"].value else ""
    )
    return component("weights", "Parameter", formula, inputs, exactness="formula", source=_BNB)


def _int8_inputs(converted: list[TensorGroup]) -> dict[str, Input]:
    where = "shapes of the linear layers"
    return {
        "int8_weights": given(_parameters(converted), where),
        "rows": given(sum(group.count * group.shape[0] for group in converted), where),
    }


def _four_bit_inputs(converted: list[TensorGroup]) -> dict[str, Input]:
    where = "shapes of the linear layers"
    sizes = [(group.count, (group.parameters or 0) // group.count) for group in converted]
    return {
        "packed_bytes": given(sum(count * -(-size // 2) for count, size in sizes), where),
        "absmax_blocks": given(
            sum(count * -(-size // _NF4_BLOCK) for count, size in sizes), f"{where}, {_NF4_BLOCK} weights a block"
        ),
        "quantized_tensors": given(sum(count for count, _ in sizes), where),
    }


def _loaded(facts: ModelFacts) -> list[TensorGroup]:
    """What a runtime builds; an adapter on top is a component of its own."""
    return [group for group in facts.tensor_groups if group.extra is None and group.role != ADAPTER]


def _parameters(groups: Iterable[TensorGroup]) -> int:
    return sum(group.parameters or 0 for group in groups)


def _stored(groups: Iterable[TensorGroup]) -> int:
    return sum(group.stored_bytes for group in groups)
