"""torchao's tensors in safetensors: what the header's metadata says that a flattened tensor subclass was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from hubaudit.data.dtypes import bits_of
from hubaudit.facts.packing_layouts import Unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.facts.quantizers import Container
    from hubaudit.types import Config, TensorInfo

_MAX_DIMENSIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One tensor subclass: its class, and the shape of the tensor it stands for where it says so."""

    tensor_class: str
    shape: tuple[int, ...] | None


def declared_tensors(metadata: Iterable[Config]) -> dict[str, Declared]:
    """By the prefix of the flattened tensors' names (``model.layers.0.mlp.up_proj._weight``), what each was; malformed entries are left out.

    (torchao 36027d82, ``flatten_tensor_state_dict`` in prototype/safetensors/safetensors_support.py)
    """
    found: dict[str, Declared] = {}
    for file in metadata:
        for name, value in file.items():
            parent, dot, leaf = name.rpartition(".")
            declared = _declared(value) if dot and isinstance(value, str) and value.startswith("{") else None
            if declared is not None:
                found[f"{parent}._{leaf}"] = declared
    return found


def _declared(text: str) -> Declared | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    tensor_class = said.get("_type") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(tensor_class, str):
        return None
    attributes = said.get("_data")
    return Declared(
        tensor_class=tensor_class, shape=_shape(attributes.get("shape")) if isinstance(attributes, Mapping) else None
    )


def _shape(said: object) -> tuple[int, ...] | None:
    if not isinstance(said, list) or not 0 < len(said) <= _MAX_DIMENSIONS:
        return None
    sizes = tuple(size for size in said if isinstance(size, int) and not isinstance(size, bool) and size > 0)
    return sizes if len(sizes) == len(said) else None


def unpack_declared(
    stored: TensorInfo, row: Container, declared: Mapping[str, Declared], classes: Mapping[str, Mapping[str, Any]]
) -> Unpacked | None:
    """The weight that a ``..._qdata`` tensor holds; ``None`` where the header does not say what it was, or shapes contradict it."""
    said = declared.get(stored.name[: len(stored.name) - len(row.ending)])
    known = None if said is None else classes.get(said.tensor_class)
    if said is None or known is None:
        return None
    bits: int = known["bits"]
    room = prod(stored.shape) * bits_of()[stored.dtype] // bits
    if said.shape is None:
        return None if known.get("padded") else Unpacked(elements=room, bits=bits)
    elements = prod(said.shape)
    fits = elements <= room if known.get("padded") else elements == room
    return Unpacked(elements=elements, bits=bits, shape=said.shape) if fits else None
