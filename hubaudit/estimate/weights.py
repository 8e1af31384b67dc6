"""Bytes of the weights once loaded: in one dtype, or packed as the files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.data.dtypes import short_name
from hubaudit.estimate.component import component, given
from hubaudit.facts.loading import converts, kept_in_float32, loaded_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.estimate.component import Input
    from hubaudit.types import Component, ModelFacts, TensorGroup


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
    source = f"every floating-point tensor loaded as {short_name(dtype)}, but those the model class keeps in fp32 (transformers 5.23.0)"
    return component("weights", "Parameter", formula, inputs, exactness="exact", source=source)


def weights_as_stored(facts: ModelFacts) -> Component | None:
    """The files' own tensors, as a packed checkpoint is loaded.

    No exact figure: a loader casts the tensors that are not packed to the load dtype, and unpacks all where it lacks the method's kernels.
    """
    if facts.stored_bytes is None or not loaded_groups(facts):
        return None
    inputs = {"stored_bytes": given(_stored(loaded_groups(facts)), "header:all tensors that are loaded")}
    return component(
        "weights",
        "Parameter",
        "stored_bytes",
        inputs,
        exactness="formula",
        source="bytes of the stored tensors, kept packed",
    )


def _parameters(groups: Iterable[TensorGroup]) -> int:
    return sum(group.parameters or 0 for group in groups)


def _stored(groups: Iterable[TensorGroup]) -> int:
    return sum(group.stored_bytes for group in groups)
