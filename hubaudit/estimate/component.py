"""Components: a formula, its inputs and where they come from, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.estimate.expression import evaluate, names_in
from hubaudit.types import Component

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.types import Category, Exactness, Omission, Sourced


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One number of a formula and where it was read."""

    value: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What one model of the estimator found: components, what it could not know, and what it took for granted."""

    components: tuple[Component, ...] = ()
    omitted: tuple[Omission, ...] = ()
    assumptions: tuple[str, ...] = ()

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            components=self.components + other.components,
            omitted=self.omitted + other.omitted,
            assumptions=self.assumptions + other.assumptions,
        )


def given(value: int, where: str) -> Input:
    """An input that comes from the workload, a table, or another computation, which ``where`` names."""
    return Input(value=value, where=where)


def known(fact: Sourced[int]) -> Input | None:
    """A fact as an input; ``None`` where it is not known."""
    return None if fact.value is None else Input(value=fact.value, where=fact.where)


def component(
    id: str,
    category: Category,
    formula: str,
    inputs: Mapping[str, Input],
    *,
    exactness: Exactness,
    source: str,
    band_percent: tuple[int, int] = (0, 0),
) -> Component:
    """Compute a component.

    Args:
        id: the wire contract's id.
        category: what kind of memory it is.
        formula: an integer expression over the names of ``inputs``, in bytes.
        inputs: the numbers; only those that the formula names are kept.
        exactness: what the figure may claim.
        source: whose formula it is.
        band_percent: how far below and above the figure the truth may lie, in percent of it.
    """
    needed = names_in(formula)
    used = {name: inputs[name] for name in inputs if name in needed}
    size_bytes = evaluate(formula, {name: item.value for name, item in used.items()})
    below, above = band_percent
    return Component(
        id=id,
        category=category,
        bytes=size_bytes,
        formula=formula,
        inputs={name: item.value for name, item in used.items()},
        exactness=exactness,
        sources=(*(f"{name}: {item.where}" for name, item in used.items()), f"formula: {source}"),
        low_bytes=size_bytes - size_bytes * below // 100,
        high_bytes=size_bytes + -(-size_bytes * above // 100),
    )
