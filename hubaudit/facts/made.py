"""Parameters that a model's class makes itself, saves to no file and has in memory all the same: Marian's tables of positions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.types import BuiltTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hubaudit.facts.config_reader import ConfigReader
    from hubaudit.types import ModelFacts, TensorGroup


def made_tensors(
    config: ConfigReader, architecture: str | None, groups: Iterable[TensorGroup]
) -> tuple[BuiltTensor, ...]:
    """Those that these files do not hold, with the shapes that the config tells; files of older releases may hold them."""
    stored = {group.pattern for group in groups}
    found = []
    for name, sides in _not_saved(architecture).items():
        shape = [config.integer(side).value for side in sides]
        if name not in stored and shape and None not in shape:
            found.append(BuiltTensor(name, "embedding", tuple(side for side in shape if side is not None)))
    return tuple(found)


def made_parameters(facts: ModelFacts) -> int:
    """How many parameters they are."""
    return sum(prod(tensor.shape) for tensor in facts.made)


def of_unknown_size(facts: ModelFacts) -> tuple[str, ...]:
    """Those that no file holds and of which the config does not tell the shape."""
    known = {group.pattern for group in facts.tensor_groups} | {tensor.name for tensor in facts.made}
    return tuple(name for name in _not_saved(facts.architecture) if name not in known)


def _not_saved(architecture: str | None) -> Mapping[str, list[str]]:
    row = table("load_rules.json")["architectures"].get(architecture, {})
    found: Mapping[str, list[str]] = row.get("not_saved", {})
    return found
