"""Precision recipes: which copies of weights and gradients a step holds, in how many bits (``data/recipes.toml``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from typing import Any

TABLE = "recipes.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One row of the table. Widths are those of one trainable parameter, 0 where the recipe holds no such copy.

    ``compute`` is the dtype of activations; with ``autocast`` matrix products run in it on casts of wider weights.
    """

    name: str
    weight_bits: int
    gradient_bits: int
    master_bits: int
    widened_gradient_bits: int
    state_bits: int
    compute: str
    autocast: bool
    is_arithmetic_only: bool
    source: str

    @property
    def weight_dtype(self) -> str:
        """The dtype that the weights are loaded in."""
        wide = {64: "F64", 32: "F32", 8: "I8"}
        return wide.get(self.weight_bits, self.compute)


def recipe_names() -> tuple[str, ...]:
    """All recipes, in the table's order."""
    return tuple(table(TABLE))


def recipe_named(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        UsageError: there is none.
    """
    row: dict[str, Any] | None = table(TABLE).get(name.lower())
    if row is None:
        raise UsageError(f"unknown recipe `{name}`", hint=f"one of {', '.join(recipe_names())}")
    return Recipe(
        name=name.lower(),
        weight_bits=row["weight_bits"],
        gradient_bits=row["gradient_bits"],
        master_bits=row["master_bits"],
        widened_gradient_bits=row["widened_gradient_bits"],
        state_bits=row["state_bits"],
        compute=row["compute"],
        autocast=row.get("autocast", False),
        is_arithmetic_only=row.get("is_arithmetic_only", False),
        source=row["source"],
    )


def recipe_for(dtype: str) -> str:
    """The recipe of a model loaded in ``dtype`` and trained as it is, without autocast or a master copy."""
    return {"F32": "fp32", "F64": "fp64", "F16": "fp16"}.get(dtype, "bf16")
