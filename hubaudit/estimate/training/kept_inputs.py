"""What norms and matrices keep of what they read, as amounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.training.amounts import Amount

if TYPE_CHECKING:
    from hubaudit.estimate.training.block import Block
    from hubaudit.estimate.training.flow import Flow

_BF16 = 2
_FLOAT = 4
_HIDDEN = "hidden_size"


def norm_saved(block: Block, flow: Flow, width: str = _HIDDEN, heads: str | None = None) -> Amount:
    """What one norm over ``width`` keeps: its input in float32, the reciprocal root, and, for its weight's gradient, the normed values.

    With ``heads`` it is a norm over each of so many heads of queries or keys.
    """
    rows = ("tokens",) if heads is None else ("tokens", heads)
    read = flow.stream if width == _HIDDEN else flow.inner
    if block.norm == "layer":
        return Amount.of(read, "tokens", width) + Amount.of(2 * _FLOAT, *rows)
    normed = _FLOAT if block.norm in ("rms_plus_one", "rms_wide") else read
    if block.norm == "rms_stream":  # T5: the product with the root takes the stream itself
        copy = _FLOAT if read < _FLOAT else 0
        return Amount.of(copy + read + (read if flow.is_trained else 0), "tokens", width) + Amount.of(_FLOAT, *rows)
    kept = Amount.of(_FLOAT + (normed if flow.is_trained else 0), "tokens", width)
    if block.norm == "rms_plus_one":  # the sum 1 + weight is a tensor of its own
        kept += Amount.of(_FLOAT, _HIDDEN if heads is None else "head_dim")
    return kept + Amount.of(_FLOAT, *rows)


def norm_temporary(block: Block, flow: Flow) -> Amount:
    """What the backward pass of one norm over the stream holds: torch's own kernel its result, a chain of operations five float32 gradients at once."""
    if block.norm == "layer":
        return Amount.of(2 * flow.stream, "tokens", _HIDDEN)
    return Amount.of(5 * _FLOAT, "tokens", _HIDDEN)


def shared_input(flow: Flow, width: str, adapted: int, products: int, wide: int, *, is_kept: bool = False) -> Amount:
    """What ``products`` matrices that share an input of ``wide`` bytes a value keep of it, ``adapted`` of them having adapters.

    ``is_kept``: another operation keeps that tensor anyway.
    """
    once = 0 if is_kept else wide
    if flow.is_trained:
        return Amount.of(_BF16 * products if flow.casts and wide > _BF16 else once, "tokens", width)
    if not adapted:
        return Amount()
    if flow.drops:  # its mask in bytes, and the dropped copy, for each
        return Amount.of((flow.adapter + 1) * adapted, "tokens", width)
    if flow.adapter == wide:
        return Amount.of(once, "tokens", width)
    return Amount.of(flow.adapter * adapted, "tokens", width)


def ranks_saved(flow: Flow, adapted: int) -> Amount:
    """What ``adapted`` adapters keep of the product with their first factor, which the second one reads."""
    return Amount.of(flow.adapter * adapted, "tokens", "rank") if adapted else Amount()
