"""Torch checkpoints as the models that they hold: without the names of the shelves they lie on, tied tensors once, slices of one tensor joined."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.types import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hubaudit.types import Json, RepoSnapshot, WeightFile

_RANK = re.compile(r"(.*/)?consolidated\.[0-9]{2}\.pth")
_NAMED = ("tensor_subclasses", "quantized_tensors", "sparse_tensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """A snapshot whose tensors are the model's own, and what was left out or joined, for people."""

    snapshot: RepoSnapshot
    notes: tuple[str, ...]


def models_own(snapshot: RepoSnapshot) -> Checkpoints:
    """The snapshot with each torch checkpoint reduced to its model.

    A training checkpoint holds the model under one key (``state_dict``) and optimizers beside it. Tensors that share all their elements with
    another one are left out, as ``save_pretrained`` leaves them out of safetensors. Meta's ``consolidated.00.pth`` … are the slices of a
    tensor-parallel run: matrices are cut, vectors repeated.
    """
    notes: list[str] = []
    weights = [_model_of(file, notes) if file.format.startswith("torch") else file for file in snapshot.weights]
    twins = {name for file in snapshot.weights for name in _shared(file)}
    indexes = snapshot.indexes
    if twins:
        indexes = tuple(
            replace(index, weight_map={name: path for name, path in index.weight_map.items() if name not in twins})
            for index in indexes
        )
    if len(weights) > 1 and all(_RANK.fullmatch(file.path) for file in weights):
        weights = list(_joined(weights))
        notes.append(f"{len(weights)} tensor-parallel slices: matrices are counted whole, vectors once")
    return Checkpoints(snapshot=replace(snapshot, weights=tuple(weights), indexes=indexes), notes=tuple(notes))


def _shared(file: WeightFile) -> Mapping[str, Json]:
    """Tensors that have all their elements in common with another one."""
    shared = file.metadata.get("shared_tensors")
    return shared if isinstance(shared, dict) and file.format.startswith("torch") else {}


def _model_of(file: WeightFile, notes: list[str]) -> WeightFile:
    key = file.metadata.get("model_key")
    shared = _shared(file)
    start = f"{key}." if isinstance(key, str) and key else ""
    kept, left = [], []
    for tensor in file.tensors:
        if not tensor.name.startswith(start):
            left.append(tensor)
        elif tensor.name not in shared:
            kept.append(TensorInfo(tensor.name[len(start) :], tensor.dtype, tensor.shape, tensor.stored_bytes))
    if left:
        keys = ", ".join(sorted({tensor.name.partition(".")[0][:40] for tensor in left})[:4])
        size = sum(tensor.stored_bytes for tensor in left)
        notes.append(f"{file.path}: {len(left)} tensors of {size} bytes beside the model ({keys}): not counted")
    return replace(file, tensors=tuple(kept), metadata=_renamed(file.metadata, start))


def _renamed(metadata: Mapping[str, Json], start: str) -> Mapping[str, Json]:
    """The metadata with its lists of tensors under the same names as the tensors."""
    if not start:
        return metadata
    changed = dict(metadata)
    for key in _NAMED:
        value = metadata.get(key)
        if isinstance(value, dict):
            changed[key] = {name.removeprefix(start): item for name, item in value.items()}
        elif isinstance(value, list):
            changed[key] = [name.removeprefix(start) if isinstance(name, str) else name for name in value]
    return changed


def _joined(weights: Sequence[WeightFile]) -> Iterable[WeightFile]:
    slices: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    for file in weights:
        for tensor in file.tensors:
            slices[tensor.name].append(tensor)
    first, *rest = weights
    yield replace(first, tensors=tuple(_join(parts) for parts in slices.values()))
    yield from (replace(file, tensors=()) for file in rest)


def _join(parts: Sequence[TensorInfo]) -> TensorInfo:
    """One tensor of all its slices. Which axis was cut is not told, so the first one stands for it: the elements are right either way."""
    first = parts[0]
    if len(first.shape) < 2:
        return first
    rows = sum(part.shape[0] for part in parts)
    return TensorInfo(first.name, first.dtype, (rows, *first.shape[1:]), sum(part.stored_bytes for part in parts))
