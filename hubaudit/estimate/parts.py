"""Weights of a diffusers pipeline, whose parts are loaded in different dtypes, and of an adapter on top of its base."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.component import component, given
from hubaudit.facts.loading import ADAPTER, TUNER, converts, kept_in_float32, load_dtype, stays_packed

if TYPE_CHECKING:
    from hubaudit.estimate.component import Input
    from hubaudit.types import Component, ModelFacts

_DIFFUSERS = "diffusers 0.40 (58eb52c0): parts of its own are loaded in float32 unless a dtype is asked for, text encoders in the dtype of their config"
_PEFT = "peft 0.21.2: cast_adapter_dtype makes tuned 16-bit weights float32; copies of the base's modules have the base's dtype"


def is_pipeline(facts: ModelFacts) -> bool:
    """Whether the facts are those of a diffusers pipeline, whose parts are loaded one by one."""
    return facts.library == "diffusers" and bool(facts.components)


def weights_of_parts(facts: ModelFacts, dtype: str | None) -> Component | None:
    """All parts of a pipeline at once, each in ``dtype``, or where that is ``None`` in the dtype that it is loaded in; packed parts as stored."""
    widths: Counter[int] = Counter()
    as_stored = 0
    for part in facts.components:
        groups = [group for group in part.tensor_groups if group.extra is None]
        own = dtype or load_dtype(part.dtype)
        kept = kept_in_float32(part.architecture, own)
        for group in groups:
            if stays_packed(part) or not converts(group):
                as_stored += group.stored_bytes
            else:
                widths[32 if kept(group) else bits_of()[own]] += group.parameters or 0
    if facts.parameters is None or not (widths or as_stored):
        return None
    names = ", ".join(str(part.name) for part in facts.components)
    inputs = {f"parameters_{bits}_bit": given(count, f"sum over {names}") for bits, count in sorted(widths.items())}
    terms = [f"parameters_{bits}_bit * {bits} // 8" for bits in sorted(widths)]
    if as_stored:
        inputs["as_stored_bytes"] = given(as_stored, "header:integers and packed weights")
        terms.append("as_stored_bytes")
    return component("weights", "Parameter", " + ".join(terms), inputs, exactness="exact", source=_DIFFUSERS)


def adapter_weights(facts: ModelFacts, bits: Input) -> Component | None:
    """What an adapter adds to its base; ``None`` where there is none. ``bits`` is the width that the base is loaded in."""
    groups = [group for group in facts.tensor_groups if group.role == ADAPTER and group.extra is None]
    if not groups:
        return None
    tuned = [group for group in groups if group.kind == TUNER and converts(group) and bits_of()[group.dtype] <= 32]
    copied = [group for group in groups if group.kind != TUNER and converts(group)]
    others = [group for group in groups if group not in tuned and group not in copied]
    where = "header:all tensors of the adapter"
    inputs = {"tuned_parameters": given(sum(group.parameters or 0 for group in tuned), where)}
    formula = "4 * tuned_parameters"
    if copied:
        inputs |= {"copied_parameters": given(sum(group.parameters or 0 for group in copied), where), "bits": bits}
        formula += " + copied_parameters * bits // 8"
    if others:
        inputs["as_stored_bytes"] = given(sum(group.stored_bytes for group in others), where)
        formula += " + as_stored_bytes"
    return component("adapters", "Parameter", formula, inputs, exactness="exact", source=_PEFT)
