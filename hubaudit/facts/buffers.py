"""Tables and masks that a model's class makes while it is loaded: no file holds them, and they lie on the device beside the weights."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.facts.skeleton_expressions import compiled
from hubaudit.facts.skeleton_scope import Reading, Scope, Unknown
from hubaudit.types import MadeBuffer, Sourced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.facts.config_reader import ConfigReader
    from hubaudit.facts.skeleton_scope import Value

#: The table, one key a model type.
TABLE = "buffers.toml"
_NAME = re.compile(r"[A-Za-z_]\w*")
#: Sections within sections that a real configuration has; a file may nest as many as it likes.
_DEEPEST = 4
#: The name of what is not known to be anywhere.
_NOTHING = "(?!)"
_LARGEST = 2**53  # as in ConfigReader: beyond it a JSON number is no count


def made_buffers(config: ConfigReader, architecture: str | None) -> tuple[MadeBuffer, ...]:
    """Those of the class that the config names; none where its rows are not of that class, or there is no row for the model type.

    What the config leaves unknown is an input without a value, with the reason.
    """
    return tuple(_of(config, architecture, ()))


def of_layers(buffers: tuple[MadeBuffer, ...], layers: Sourced[int]) -> tuple[MadeBuffer, ...]:
    """The same where the model has so many layers: a stage of a pipeline makes what its layers have, and at most all of the rest."""
    return tuple(
        replace(one, inputs={**one.inputs, "layers": layers}) if "layers" in one.inputs else one for one in buffers
    )


def is_one_of(name: str, buffers: tuple[MadeBuffer, ...]) -> bool:
    """Whether a module's buffer of this full name is one of them."""
    return any(re.search(rf"(^|\.){buffer.name}$", name) for buffer in buffers)


def _of(config: ConfigReader, architecture: str | None, path: tuple[str, ...]) -> Iterator[MadeBuffer]:
    row = _row(config.model_type)
    if row is None or (architecture is not None and not architecture.startswith(tuple(row["classes"]))):
        return
    for buffer in row.get("buffer", ()):
        if architecture is None and "only" in buffer:
            yield _unknown(buffer["name"], "the configuration names no class, and not all of them have it", row)
        elif architecture in buffer.get("only", (architecture,)):
            yield from _buffer(config, row, buffer, path)
    for name in row.get("sections", ()) if len(path) < _DEEPEST else ():
        section = config.section(name)
        if section is not None:
            yield from _of(section, None, (*path, name))
        else:
            yield _unknown(_NOTHING, f"the configuration has no {name}", row)


def _row(model_type: str | None) -> Mapping[str, Any] | None:
    rows = table(TABLE)
    found: Mapping[str, Any] | None = rows.get(rows["alike"].get(model_type, model_type))
    return found if found is not None and "classes" in found else None


def _buffer(
    config: ConfigReader, row: Mapping[str, Any], buffer: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[MadeBuffer]:
    is_made, where = _evaluated(config, buffer.get("when", "True"))
    if is_made is None:
        yield _unknown(buffer["name"], where, row)
    if not is_made:
        return
    needed = set(_NAME.findall(buffer["formula"]))
    inputs = {name: _input(config, text) for name, text in row["inputs"].items() if name in needed}
    prefix = "".join(f"{name}_" for name in path)
    yield MadeBuffer(
        name=buffer["name"],
        formula=_NAME.sub(lambda match: prefix + match[0] if match[0] in inputs else match[0], buffer["formula"]),
        inputs={prefix + name: one for name, one in inputs.items()},
        source=row["source"],
    )


def _unknown(name: str, reason: str, row: Mapping[str, Any]) -> MadeBuffer:
    return MadeBuffer(
        name=name, formula="size", inputs={"size": Sourced(value=None, where=reason)}, source=row.get("source", "")
    )


def _input(config: ConfigReader, text: str) -> Sourced[int]:
    value, where = _evaluated(config, text)
    if value is None:
        return Sourced(value=None, where=where)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        return Sourced(value=None, where=f"{text} is not a count ({where})")
    return Sourced(value=value, where=where)


def _evaluated(config: ConfigReader, text: str) -> tuple[Value, str]:
    """What the expression is for this configuration and where its values were read; ``None`` and why where nobody says."""
    reading = Reading(config)
    try:
        value = compiled(text)(Scope(config, reading))
    except Unknown as unknown:
        return None, str(unknown)
    where = "; ".join(dict.fromkeys(reading.where.values()))
    return value, where if text in reading.where else f"{text} of {where}"
