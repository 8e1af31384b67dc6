"""How every number came about: the formula, the same with the numbers put in, and where each was read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hubaudit.report.phrases import band, clean, thumb_line
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.types import Component, Report

_NAME = re.compile(r"[A-Za-z_]\w*")


def explain(report: Report) -> Iterator[str]:
    """Lines of plain text, one block for each component of the estimate, then each fact with its place."""
    for part in report.estimate.components:
        yield from _component(part)
    thumb = thumb_line(report.estimate)
    if thumb:
        yield thumb
        yield ""
    yield "Where each fact was read"
    for name in (
        "layers",
        "hidden_size",
        "attention_heads",
        "kv_heads",
        "head_dim",
        "vocab_size",
        "max_positions",
        "tied_embeddings",
        "dtype",
    ):
        fact = getattr(report.facts, name)
        value = "unknown" if fact.value is None else fact.value
        yield clean(f"  {name} = {value}  ({fact.where})")


def _component(part: Component) -> Iterator[str]:
    size = f"{part.id}: {part.bytes:,} B = {format_bytes(part.bytes)}, {part.exactness}"
    spread = band(part.low_bytes, part.high_bytes)
    yield size + (f", {spread}" if spread else "")
    yield f"  = {part.formula}"
    yield f"  = {substituted(part.formula, part.inputs)}"
    yield from (f"    {clean(source)}" for source in part.sources)
    yield ""


def substituted(formula: str, inputs: Mapping[str, int]) -> str:
    """The formula with the numbers in place of the names."""
    return _NAME.sub(lambda name: str(inputs.get(name[0], name[0])), formula)
