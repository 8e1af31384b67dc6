"""Tensors that lie in one storage: whose bytes they are, so that tied weights are counted once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hubaudit.formats.torch_rebuild import Rebuilt

Placed = tuple[str, "Rebuilt"]


def share_bytes(tensors: Iterable[Placed]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Give every stored byte to one tensor.

    Returns:
        The bytes of each tensor by name, which add up to what all tensors together cover; and of each tensor that has no elements
        of its own the tensor whose elements they are. A tensor is that where it covers the same elements as one before it (tied
        weights, transposed or reshaped or not) or lies inside one without holes (a slice beside its whole).
    """
    by_storage: dict[str, list[Placed]] = defaultdict(list)
    own_bytes: dict[str, int] = {}
    for name, tensor in tensors:
        own_bytes[name] = 0
        if tensor.storage is not None and tensor.end > tensor.start:
            by_storage[tensor.storage].append((name, tensor))
    owners: dict[str, str] = {}
    for placed in by_storage.values():
        _share_storage(placed, own_bytes, owners)
    return own_bytes, owners


def _share_storage(placed: list[Placed], own_bytes: dict[str, int], owners: dict[str, str]) -> None:
    """Go through one storage from its start, the longer of two that start together first, then the one that the file names first."""
    placed.sort(key=lambda item: (item[1].start, -item[1].end))
    covered = 0
    whole_end, whole_name = 0, ""
    same: dict[tuple[int, str, tuple[tuple[int, int], ...]], str] = {}
    for name, tensor in placed:
        elements = (tensor.start, tensor.dtype, tensor.layout)
        if tensor.end <= whole_end:
            owners[name] = whole_name
        elif elements in same:
            owners[name] = same[elements]
        own_bytes[name] = max(0, tensor.end - max(tensor.start, covered))
        covered = max(covered, tensor.end)
        same.setdefault(elements, name)
        if tensor.dense and tensor.end > whole_end:
            whole_end, whole_name = tensor.end, name
