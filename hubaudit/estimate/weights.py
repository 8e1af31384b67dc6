"""Bytes of the weights once loaded: in one dtype, or packed as the files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.data.dtypes import short_name
from hubaudit.estimate.component import component, given
from hubaudit.facts.loading import converts, kept_in_float32, loaded_groups, not_found_in_float32
from hubaudit.facts.made import made_parameters, of_unknown_size
from hubaudit.facts.packed_loading import stays_as_stored, unpacked_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hubaudit.estimate.component import Input
    from hubaudit.types import Component, ModelFacts, TensorGroup


#: Norms, biases and the like: 1.7 % of a DeepSeek-V4 of 3.5 million parameters, less of a larger one; 0.7 % of an opus-mt of 74 million, tables of positions.
_UNSEEN_PERCENT = (0, 2)


def weights_in(facts: ModelFacts, dtype: str, bits: Input) -> Component | None:
    """All loaded parameters in one dtype: parameters × bits ÷ 8. Integer tensors keep their own bytes."""
    groups = loaded_groups(facts)
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
    if facts.made:
        inputs["made_parameters"] = given(made_parameters(facts), "table:load_rules.json")
        formula += " + made_parameters * bits // 8"
    source = f"every floating-point tensor loaded as {short_name(dtype)}, but those the model class keeps in fp32 (transformers 5.23.0)"
    doubts = tuple(_doubts(facts, dtype))
    if doubts:
        source = "; ".join((source, *doubts))
        return component(
            "weights", "Parameter", formula, inputs, exactness="formula", source=source, band_percent=_UNSEEN_PERCENT
        )
    return component("weights", "Parameter", formula, inputs, exactness="exact", source=source)


def _doubts(facts: ModelFacts, dtype: str) -> Iterator[str]:
    """Why the loaded weights may be somewhat more than what the files hold."""
    unseen = not_found_in_float32(facts, dtype)
    if unseen:
        yield f"no tensor is called {', '.join(unseen)}, which may bear other names in the files and be kept in fp32 too"
    made = of_unknown_size(facts)
    if made:
        yield f"the class makes {', '.join(made)} itself, which no file holds, and the config does not tell their size"


def weights_as_stored(facts: ModelFacts, dtype: str, bits: Input) -> Component | None:
    """Packed weights and their scales as the files have them; what is not quantized in the load dtype, and in GGUF as it is.

    No exact figure: kernels may lay containers out anew, with padding.
    """
    return _packed(facts, dtype, bits, unpacks=False)


def weights_unpacked(facts: ModelFacts, dtype: str, bits: Input) -> Component | None:
    """What a packed checkpoint takes once all of its weights were unpacked in place into the load dtype, their scales still beside them.

    ``None`` where a packing is not understood.
    """
    if any(group.parameters is None for group in loaded_groups(facts)):
        return None
    return _packed(facts, dtype, bits, unpacks=True)


def _packed(facts: ModelFacts, dtype: str, bits: Input, *, unpacks: bool) -> Component | None:
    groups = loaded_groups(facts)
    if not groups:
        return None
    kept = kept_in_float32(facts.architecture, dtype)
    as_stored = stays_as_stored(facts)
    plain = [group for group in groups if converts(group) and not as_stored(group) and group.parameters is not None]
    others = [group for group in groups if group not in plain]
    if others and not _stored(others) and not _parameters(plain):
        return None  # packed tensors without bytes, of which nobody can tell what they stand for
    where = "header:all tensors that are loaded"
    inputs = {
        "stored_bytes": given(_stored(others), where),
        "unpacked_bytes": given(sum(unpacked_bytes(group, bits.value) for group in others), f"{where}, unpacked"),
        "parameters": given(_parameters(group for group in plain if not kept(group)), "header:weights not quantized"),
        "bits": bits,
        "float32_parameters": given(_parameters(group for group in plain if kept(group)), "table:load_rules.json"),
    }
    formula = "unpacked_bytes" if unpacks else "stored_bytes"
    formula += " + parameters * bits // 8" if inputs["parameters"].value else ""
    formula += " + 4 * float32_parameters" if inputs["float32_parameters"].value else ""
    source = "every weight unpacked" if unpacks else "bytes of the stored tensors, kept packed"
    source += f"; what is not quantized as {short_name(dtype)}" if inputs["parameters"].value else ""
    return component("weights", "Parameter", formula, inputs, exactness="formula", source=source)


def _parameters(groups: Iterable[TensorGroup]) -> int:
    return sum(group.parameters or 0 for group in groups)


def _stored(groups: Iterable[TensorGroup]) -> int:
    return sum(group.stored_bytes for group in groups)
