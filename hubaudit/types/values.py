"""What every noun is made of: JSON, the words that a field may hold, and a value with the place where it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Anything ``json.loads`` can return."""

Config: TypeAlias = Mapping[str, Json]
"""One JSON object read from a repository."""

Source: TypeAlias = Literal["hub", "cache", "local", "bundle"]
Category: TypeAlias = Literal[
    "Parameter",
    "Buffer",
    "Gradient",
    "OptimizerState",
    "Activation",
    "KVCache",
    "Workspace",
    "Context",
    "Fragmentation",
]
Exactness: TypeAlias = Literal["exact", "formula", "fitted", "bound"]
Mode: TypeAlias = Literal["infer", "train", "kv"]
Severity: TypeAlias = Literal["error", "warning", "info"]
Checkpointing: TypeAlias = Literal["full", "selective"]
ProblemKind: TypeAlias = Literal["unreadable", "truncated", "missing", "unreferenced"]

NOTHING: Mapping[str, Json] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced(Generic[T_co]):
    """A value and where it was read.

    ``where`` is ``"config.json#num_hidden_layers"``, ``"header:<tensor name>"``, ``"default:<model type>"`` (the config class's
    default in transformers, which is not the checkpoint's word), or ``"rule:<what was computed>"``. Where ``value`` is ``None``,
    ``where`` says why it is not known.
    """

    value: T_co | None
    where: str
