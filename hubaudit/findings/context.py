"""How many positions a model has by its config, rope scaling included: what claims of a context length are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.types import NOTHING, Sourced

if TYPE_CHECKING:
    from hubaudit.types import Config, Json, ModelFacts, RepoSnapshot

_MAIN = "config.json"
_SECTIONS = ("text_config", "llm_config", "language_config")
#: transformers 4 and 5 spell it so.
_ROPE_KEYS = ("rope_scaling", "rope_parameters")
_LARGEST_FACTOR = 10**6
_LARGEST_COUNT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """A rope scaling as the config declares it: how rotary positions are stretched, by how much, and from which context."""

    kind: str
    factor: float | None
    original_tokens: int | None
    where: str
    section: Config

    @property
    def reach(self) -> int | None:
        """The context that it stretches to, where the config names factor and original."""
        if self.factor is None or self.original_tokens is None:
            return None
        return round(self.factor * self.original_tokens)


def rope_scaling(snapshot: RepoSnapshot) -> RopeScaling | None:
    """The rope scaling of the (language) model; ``None`` where there is none, or it is spelt in a way that this does not know."""
    config = snapshot.configs.get(_MAIN, NOTHING)
    for prefix, section in (("", config), *((f"{name}.", config.get(name)) for name in _SECTIONS)):
        for key in _ROPE_KEYS:
            rope = section.get(key) if isinstance(section, dict) else None
            kind = (rope.get("rope_type") or rope.get("type")) if isinstance(rope, dict) else None
            if isinstance(rope, dict) and isinstance(section, dict) and isinstance(kind, str) and kind != "default":
                original = rope.get("original_max_position_embeddings") or section.get(
                    "original_max_position_embeddings"
                )
                return RopeScaling(
                    kind=kind,
                    factor=_factor(rope.get("factor")),
                    original_tokens=original if type(original) is int and 0 < original <= _LARGEST_COUNT else None,
                    where=f"{_MAIN}#{prefix}{key}",
                    section=rope,
                )
    return None


def longest_context(snapshot: RepoSnapshot, facts: ModelFacts) -> Sourced[int]:
    """The most tokens that the config stands for: its positions, or what a declared rope scaling stretches them to, whichever is more."""
    positions, rope = facts.max_positions, rope_scaling(snapshot)
    if positions.value is None or rope is None or rope.kind == "llama3":
        return positions
    stretched = rope.reach
    if stretched is None and rope.factor is not None and rope.kind in ("yarn", "dynamic", "linear"):
        stretched = round(rope.factor * positions.value)
    if stretched is None or stretched <= positions.value:
        return positions
    return Sourced(value=stretched, where=f"{rope.where}: factor {rope.factor:g}")


def _factor(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST_FACTOR:  # NaN is not
        return None
    return float(value)
