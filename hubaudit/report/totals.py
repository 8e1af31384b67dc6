"""The sum of an estimate in words: one that had to leave something out is a least, and nobody may take it for the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from hubaudit.types import Estimate


def least(size_bytes: int, estimate: Estimate) -> str:
    """A sum that lacks what ``estimate`` lacks: ``1.39 GiB``, or ``at least 1.39 GiB``."""
    size = format_bytes(size_bytes)
    return f"at least {size}" if estimate.omitted else size


def total_of(estimate: Estimate) -> str:
    """The whole need, or the least that it can be."""
    return least(estimate.total_bytes, estimate)


def total_band(estimate: Estimate) -> str:
    """The band around the whole need; what is not whole has no upper end."""
    if estimate.omitted or estimate.low_bytes == estimate.high_bytes:
        return ""
    return f"{format_bytes(estimate.low_bytes)} – {format_bytes(estimate.high_bytes)}"
