"""What a program does to a device's memory, in order: the record that a trace writes and a replay reads."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, cast


class Alloc(NamedTuple):
    """A tensor's storage comes to life. ``id`` names it until it is freed; ``operator`` made it."""

    id: int
    bytes: int
    operator: str


class Free(NamedTuple):
    """A storage dies."""

    id: int


class Scratch(NamedTuple):
    """Memory that a kernel takes while it runs: all of ``sizes`` at once, in that order."""

    sizes: tuple[int, ...]
    operator: str


class BlasCall(NamedTuple):
    """A matrix product, by cuBLAS or, with a bias, by cuBLASLt; on autograd's thread, which has handles of its own, or on the main one."""

    library: str
    is_backward: bool


class Mark(NamedTuple):
    """The end of a phase, by its name."""

    label: str


class EmptyCache(NamedTuple):
    """The program gives cached memory back."""


Event: TypeAlias = Alloc | Free | Scratch | BlasCall | Mark | EmptyCache
_KINDS: tuple[type[Event], ...] = (Alloc, Free, Scratch, BlasCall, Mark, EmptyCache)


class Trace(NamedTuple):
    """The events, and for each storage whose part is known, the component of the estimate that it belongs to."""

    events: tuple[Event, ...]
    components: dict[int, str]


def to_rows(trace: Trace) -> list[list[object]]:
    """JSON-ready rows: the kind's number, its fields, and for a storage its component."""
    rows: list[list[object]] = []
    for event in trace.events:
        row: list[object] = [_KINDS.index(type(event)), *event]
        rows.append([*row, trace.components.get(event.id)] if isinstance(event, Alloc) else row)
    return rows


def from_rows(rows: list[list[object]]) -> Trace:
    """The trace that :func:`to_rows` wrote."""
    events: list[Event] = []
    components: dict[int, str] = {}
    for row in rows:
        fields: list[Any] = row[1:]
        made = _KINDS[cast("int", row[0])]
        if made is Alloc:
            component = fields.pop()
            if component is not None:
                components[fields[0]] = component
        if made is Scratch:
            fields[0] = tuple(fields[0])
        events.append(made(*fields))
    return Trace(tuple(events), components)
