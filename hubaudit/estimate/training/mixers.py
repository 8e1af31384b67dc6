"""What the parts of layers keep that are no plain attention: the terms of mixers.toml over sizes that are read from a model's shapes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.estimate.component import Input, given, known
from hubaudit.estimate.training.amounts import Amount
from hubaudit.facts.loading import loaded_groups

if TYPE_CHECKING:
    from hubaudit.estimate.training.flow import Flow
    from hubaudit.types import ModelFacts

TABLE = "mixers.toml"
_FLOAT = 4


@cache
def mixer_named(name: str) -> dict[str, Any]:
    """One row of the table; see its head for what the words mean."""
    row: dict[str, Any] = table(TABLE)[name]
    return row


def mixer_dimensions(facts: ModelFacts, name: str) -> dict[str, Input] | str:
    """The sizes that a mixer's terms are made of, each with its place; or which of them is not known."""
    found: dict[str, Input] = {}
    row = mixer_named(name)
    if row.get("chunked"):
        said = facts.scan_chunk_tokens
        chunk = None if said is None else known(said)
        if chunk is None:
            where = "no config" if said is None else said.where
            return f"how many tokens the {name} layers take at once is not known: {where}"
        found["scan_chunk"] = chunk
    for size, spec in row.get("dims", {}).items():
        value = _quotient(facts, spec, found)
        if value is None:
            return f"{size} of the {name} layers is not known: no tensor gives {spec}"
        found[size] = given(value, f"shapes: {spec}")
    return found


def _quotient(facts: ModelFacts, spec: str, found: dict[str, Input]) -> int | None:
    top, _, bottom = spec.partition(" / ")
    value = _first(facts, top, found)
    divisor = _first(facts, bottom, found) if bottom else 1
    return None if value is None or not divisor else value // divisor


def _first(facts: ModelFacts, alternatives: str, found: dict[str, Input]) -> int | None:
    for one in alternatives.split("|"):
        if one.isdigit():
            return int(one)
        if one in found:
            return found[one].value
        value = _of_plan(facts, one[5:]) if one.startswith("plan:") else _of_shape(facts, one)
        if value is not None:
            return value
    return None


def _of_plan(facts: ModelFacts, name: str) -> int | None:
    for layer in facts.layer_plan or ():
        for tensor in layer.tensors:
            if tensor.name == name:
                return tensor.fixed_elements
    return None


def _of_shape(facts: ModelFacts, place: str) -> int | None:
    suffix, _, axis = place.rpartition(":")
    for group in loaded_groups(facts):
        if group.pattern.endswith(f".{suffix}"):
            shape = group.logical_shape or group.shape
            return shape[int(axis)] if int(axis) < len(shape) else None
    return None


def terms(text: str, flow: Flow) -> Amount:
    """Terms as the table writes them, as an amount."""
    dropped = flow.inner if flow.score_mask else 0
    widths = {
        "mask": flow.mask,
        "score_mask": flow.score_mask,
        "dropped": dropped,
        "float": _FLOAT,
        "inner": flow.inner,
        "stream": flow.stream,
        "upcast": _FLOAT if flow.inner < _FLOAT else 0,
        "product": flow.inner if flow.casts else _FLOAT,
        "cast": flow.inner if flow.casts else 0,
        "uncast": 0 if flow.casts else flow.inner,
        "trained": _FLOAT if flow.is_trained else 0,
        "as_is": _FLOAT if flow.inner == _FLOAT else 0,
    }
    made = Amount()
    for term in text.split(" + ") if text else ():
        coefficient, names = 1, []
        for word in term.split():
            if word.isdigit():
                coefficient *= int(word)
            elif word in widths:
                coefficient *= widths[word]
            else:
                names.append(word)
        made += Amount.of(coefficient, *names)
    return made


def by_kernel(row: dict[str, Any], entry: str, kernel: str, flow: Flow) -> Amount:
    """The terms of ``keeps`` or ``temporary``, and those of the attention kernel that runs."""
    special = "fused" if kernel in ("flash", "efficient") else "eager"
    return terms(row.get(entry, ""), flow) + terms(row.get(f"{entry}_{special}", ""), flow)
