"""Values out of a GGUF file's metadata: by the architecture's own key and no other, with the key as their source.

``llama.rope.scaling.original_context_length`` and ``clip.vision.block_count`` end like keys of the language model and are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.types import Config, Json, Sourced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.types import WeightFile

MAX_LAYERS = 4096
_LARGEST_COUNT = 2**53
_ARCHITECTURE = "general.architecture"


class GgufMetadata:
    """The metadata of one model: of a split one, that of the shard that has it."""

    def __init__(self, metadata: Config) -> None:
        self._metadata = metadata
        named = metadata.get(_ARCHITECTURE)
        self.architecture: str | None = named if isinstance(named, str) and named else None

    def own(self, key: str) -> Json:
        """The value of the architecture's own ``key``, such as ``block_count``; ``None`` where the file has none."""
        return self._metadata.get(self._name(key))

    def general(self, key: str) -> Json:
        """The value of a key that belongs to no architecture, by its whole name."""
        return self._metadata.get(key)

    def count(self, *keys: str) -> Sourced[int]:
        """The first of ``keys`` that is there, as a count; a list of equal counts is one too."""
        for key in keys:
            value, where = self.own(key), f"gguf:{self._name(key)}"
            if value is None:
                continue
            counts = _counts(value)
            if counts is None:
                return Sourced(value=None, where=f"{where} is no count")
            distinct = set(counts) - {0} if len(counts) > 1 else set(counts)
            if len(distinct) != 1:
                listed = ", ".join(str(count) for count in sorted(distinct)[:4])
                return Sourced(value=None, where=f"{where} differs by layer ({listed or 'none'})")
            return Sourced(value=distinct.pop(), where=where)
        return Sourced(value=None, where=f"the file has no {self._name(keys[0])}")

    def per_layer(self, key: str, layers: int) -> tuple[int, ...] | None:
        """``key`` for each layer: a number for all of them, or a list; ``None`` where it is neither, or too short."""
        counts = _counts(self.own(key))
        if counts is None:
            return None
        if len(counts) == 1:
            return counts * layers
        return counts[:layers] if len(counts) >= layers else None

    def flags(self, key: str, layers: int) -> tuple[bool, ...] | None:
        """A list of true and false (or 1 and 0) for each layer; ``None`` where the file has no such list."""
        value = self.own(key)
        if not isinstance(value, list) or len(value) < layers or not all(type(item) in (bool, int) for item in value):
            return None
        return tuple(bool(item) for item in value[:layers])

    def length(self, key: str) -> Sourced[int]:
        """The length of a list that belongs to no architecture, whether it was kept or not."""
        value = self._metadata.get(key)
        counted = value.get("length") if isinstance(value, dict) else len(value) if isinstance(value, list) else None
        if type(counted) is not int:
            return Sourced(value=None, where=f"the file has no list {key}")
        return Sourced(value=counted, where=f"gguf:{key} (its length)")

    def starts_with(self, prefix: str) -> bool:
        """Whether the architecture has any key of this beginning."""
        return any(key.startswith(self._name(prefix)) for key in self._metadata)

    def _name(self, key: str) -> str:
        return f"{self.architecture}.{key}"


def metadata_of(weights: Sequence[WeightFile]) -> GgufMetadata:
    """That of the file that names an architecture: a split model's first shard has all the keys, the others only their number."""
    for file in weights:
        if isinstance(file.metadata.get(_ARCHITECTURE), str):
            return GgufMetadata(file.metadata)
    return GgufMetadata(weights[0].metadata if weights else {})


def _counts(value: Json) -> tuple[int, ...] | None:
    items = value if isinstance(value, list) else [value]
    counts = [_count(item) for item in items]
    return tuple(count for count in counts if count is not None) if counts and None not in counts else None


def _count(value: Json) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST_COUNT:
        return None
    return int(value) if value == int(value) else None
