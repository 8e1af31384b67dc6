"""Optimizer states, tensor by tensor, and the temporaries of an update (``data/optimizers.toml``)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.errors import UsageError
from hubaudit.estimate.component import component, given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hubaudit.estimate.component import Input
    from hubaudit.estimate.training.tensors import Trained
    from hubaudit.types import Component

TABLE = "optimizers.toml"
_LARGE = 4096
_DEFAULT_RANK = 128

_OF: Mapping[str, Callable[[Trained], bool]] = {
    "all": lambda _: True,
    "matrix": lambda tensor: tensor.is_matrix,
    "hidden_matrix": lambda tensor: tensor.is_hidden_matrix,
    "embedding": lambda tensor: tensor.role == "embedding",
    "large": lambda tensor: tensor.elements >= _LARGE,
    "blocks_of_256": lambda tensor: tensor.elements >= _LARGE and tensor.elements % 256 == 0,
    "blocks_of_128": lambda tensor: tensor.elements >= _LARGE and tensor.elements % 128 == 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """States of the tensors that ``of`` holds for: multiples of quantities, in bytes and in the parameter's own width."""

    of: str
    in_bytes: Mapping[str, int]
    in_own_width: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One row of the table."""

    name: str
    states: tuple[StateRow, ...]
    fixed_bytes: int
    managed_from_elements: int | None
    rank: int
    step_all: int
    step_largest: int
    source: str

    def row_of(self, tensor: Trained) -> StateRow | None:
        """The row that decides what is kept for ``tensor``."""
        return next((row for row in self.states if _OF[row.of](tensor)), None)


@cache
def _by_name() -> dict[str, str]:
    rows = table(TABLE)
    return {name: name for name in rows} | {
        alias: name for name, row in rows.items() for alias in row.get("aliases", ())
    }


def optimizer_names() -> tuple[str, ...]:
    """All optimizers, in the table's order."""
    return tuple(table(TABLE))


def optimizer_named(name: str) -> Optimizer:
    """The optimizer of that name, or of that alias of the Hugging Face Trainer's ``optim``.

    Raises:
        UsageError: there is none.
    """
    found = _by_name().get(name.lower().replace("-", "_"))
    if found is None:
        raise UsageError(f"unknown optimizer `{name}`", hint=f"one of {', '.join(optimizer_names())}")
    row: dict[str, Any] = table(TABLE)[found]
    step = row.get("step", {})
    return Optimizer(
        name=found,
        states=tuple(
            StateRow(of=state["of"], in_bytes=state.get("bytes", {}), in_own_width=state.get("own", {}))
            for state in row["states"]
        ),
        fixed_bytes=row.get("fixed_bytes", 0),
        managed_from_elements=row.get("managed_from_elements"),
        rank=row.get("rank", _DEFAULT_RANK),
        step_all=step.get("all", 0),
        step_largest=step.get("largest", 0),
        source=row["source"],
    )


def quantities(tensor: Trained, rank: int) -> dict[str, int]:
    """The quantities of one tensor that states are multiples of; see the head of the table."""
    elements = tensor.elements
    found = {
        "elements": elements,
        "half_elements": -(-elements // 2),
        "blocks_256": -(-elements // 256),
        "blocks_128": -(-elements // 128),
        "tensors": 1,
    }
    if not tensor.is_matrix:
        return found
    *outer, rows, columns = tensor.shape
    most, least = max(rows, columns), min(rows, columns)
    kept = min(rank, least)
    return found | {
        "edges": prod(outer) * (rows + columns),
        "projected": kept * most,
        "projector": kept * least,
        "projected_edges": kept + most,
        "sketched": rank * most,
        "sketch": rank * least,
    }


def state_component(tensors: Iterable[Trained], optimizer: Optimizer, own_bits: Input) -> Component:
    """All states on the GPU once the first update has been made.

    Args:
        tensors: the trainable tensors.
        optimizer: whose states.
        own_bits: width of the parameters that the optimizer updates: the master copy's where there is one.
    """
    in_bytes: Counter[tuple[str, str, int]] = Counter()
    in_own: Counter[tuple[str, str, int]] = Counter()
    for tensor in tensors:
        row = optimizer.row_of(tensor)
        if row is None:
            continue
        amounts = quantities(tensor, optimizer.rank)
        for name, times in row.in_bytes.items():
            if not _is_managed(name, tensor, optimizer):
                in_bytes[row.of, name, times] += tensor.count * amounts[name]
        for name, times in row.in_own_width.items():
            in_own[row.of, name, times] += tensor.count * amounts[name]
    return _as_component(in_bytes, in_own, optimizer, own_bits)


def _is_managed(quantity: str, tensor: Trained, optimizer: Optimizer) -> bool:
    """Whether paged memory holds it: the states themselves of large tensors, not the maxima of their blocks."""
    least = optimizer.managed_from_elements
    return least is not None and quantity == "elements" and tensor.elements >= least


def _as_component(
    in_bytes: Counter[tuple[str, str, int]],
    in_own: Counter[tuple[str, str, int]],
    optimizer: Optimizer,
    own_bits: Input,
) -> Component:
    inputs: dict[str, Input] = {}
    terms: list[str] = []
    for of, name, times in in_own:
        label = _label(of, name)
        inputs[label] = given(in_own[of, name, times], "shapes of the trainable tensors")
        terms.append(f"{times} * {label} * state_bits // 8")
    for of, name, times in in_bytes:
        label = _label(of, name)
        inputs[label] = given(in_bytes[of, name, times], "shapes of the trainable tensors")
        terms.append(f"{times} * {label}")
    if any(in_bytes.values()) and optimizer.fixed_bytes:
        inputs["map_bytes"] = given(optimizer.fixed_bytes, f"table:{TABLE}#{optimizer.name}")
        terms.append("map_bytes")
    inputs["state_bits"] = own_bits
    formula = " + ".join(terms) or "0"
    return component("optimizer", "OptimizerState", formula, inputs, exactness="formula", source=optimizer.source)


def _label(of: str, name: str) -> str:
    return name if of == "all" else f"{of}_{name}"


def step_bytes(tensors: tuple[Trained, ...], optimizer: Optimizer, own_bits: int) -> int:
    """Temporaries of one update, in bytes."""
    sizes = [tensor.elements * own_bits // 8 for tensor in tensors]
    together = sum(size * tensor.count for size, tensor in zip(sizes, tensors, strict=True))
    return optimizer.step_all * together + optimizer.step_largest * max(sizes, default=0)
