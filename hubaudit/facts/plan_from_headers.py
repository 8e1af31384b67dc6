"""What the layers keep between tokens, by the shapes of their projections alone: for weights that come without a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.types import CacheTensor, LayerSpec

if TYPE_CHECKING:
    from hubaudit.facts.headers import HeaderFacts


def plan_from_headers(headers: HeaderFacts) -> tuple[tuple[LayerSpec, ...] | None, str | None]:
    """Full attention in every layer, as wide as the key and value projections are.

    Shapes do not tell a window or whether attention is causal at all, so this is an upper bound and its ``where`` says so.
    """
    if headers.layers is None or len(headers.key_widths) != 1 or len(headers.value_widths) != 1:
        return None, "no config, and the key and value projections are not of one known kind in every layer"
    key, value = (next(iter(widths)) for widths in (headers.key_widths, headers.value_widths))
    tensors = (CacheTensor(name="keys", elements_per_token=key), CacheTensor(name="values", elements_per_token=value))
    where = (
        "header:rows of the key and value projections (no config: windows would be smaller, an encoder keeps nothing)"
    )
    return tuple(
        LayerSpec(index=index, kind="full", tensors=tensors, where=where) for index in range(headers.layers)
    ), None
