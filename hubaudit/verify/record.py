"""Calibration records: a measurement as JSON that others can read again, with what is needed to repeat it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hubaudit._version import __version__
from hubaudit.errors import CannotAuditError
from hubaudit.formats.quoting import shown
from hubaudit.types import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hubaudit.verify.launch import MeasurementError
    from hubaudit.verify.measurement import Measurement

VERSION = 1
OUTCOMES = ("ok", "out_of_memory", "timeout", "crashed", "failed")
_BYTES = {"type": "integer", "minimum": 0}
_MAYBE = {"type": ["integer", "null"], "minimum": 0}
_WORD = {"type": ["string", "null"]}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


#: JSON Schema (draft 2020-12) of a record. Objects are open: later versions may add names.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(
        {
            "record_version": {"const": VERSION},
            "tool": _object({"name": {"type": "string"}, "version": {"type": "string"}}),
            "outcome": {"enum": list(OUTCOMES)},
            "message": _WORD,
            "subject": _object({"repo_id": {"type": "string"}, "revision": _WORD, "commit": _WORD}),
            "config": {"type": "object"},
            "workload": {"type": "object"},
            "device": {"enum": ["cpu", "cuda"]},
            "weights": {"enum": ["random", "loaded"]},
            "measures": {"type": "string"},
            "environment": _object(
                {
                    "python": {"type": "string"},
                    "system": {"type": "string"},
                    "device": {"type": "string"},
                    "libraries": {"type": "object"},
                }
            ),
            "phases": {
                "type": "array",
                "items": _object(
                    {
                        "name": {"type": "string"},
                        "allocated_bytes": _BYTES,
                        "peak_allocated_bytes": _BYTES,
                        "reserved_bytes": _MAYBE,
                        "peak_reserved_bytes": _MAYBE,
                        "process_bytes": _MAYBE,
                        "exact_peak_allocated_bytes": _MAYBE,
                        "exact_peak_reserved_bytes": _MAYBE,
                    },
                    optional=("exact_peak_allocated_bytes", "exact_peak_reserved_bytes"),
                ),
            },
            "figures": {
                "type": "array",
                "items": _object(
                    {
                        "id": {"type": "string"},
                        "measured_bytes": _MAYBE,
                        "formula_bytes": _MAYBE,
                        "exact_bytes": _MAYBE,
                    }
                ),
            },
            "formula_lacks": {"type": "array", "items": {"type": "string"}},
            "exact_reason": _WORD,
            "cache": {"type": ["object", "null"]},
            "rests": {"type": "array", "items": _BYTES},
            "peak_resident_bytes": _MAYBE,
        }
    ),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "null": (type(None),),
}


def to_record(made: Measurement) -> dict[str, Any]:
    """The record of a run that ended well. The workload holds what differs from the defaults."""
    return {
        "record_version": VERSION,
        "tool": {"name": "hubaudit", "version": __version__},
        "outcome": "ok",
        "message": None,
        "subject": {
            "repo_id": made.subject.repo_id,
            "revision": made.subject.revision,
            "commit": made.subject.commit,
        },
        "config": dict(made.config),
        "workload": _asked(made.workload),
        "device": made.device,
        "weights": made.weights,
        "measures": made.measures,
        "environment": dict(made.environment),
        "phases": [_plain(phase) for phase in made.phases],
        "figures": [_plain(figure) for figure in made.figures],
        "formula_lacks": list(made.formula_lacks),
        "exact_reason": made.exact_reason,
        "cache": None if made.cache is None else _plain(made.cache),
        "rests": list(made.rests),
        "peak_resident_bytes": made.peak_resident_bytes,
    }


def failed_record(
    error: MeasurementError, *, repo_id: str, config: Mapping[str, Any], workload: Workload, device: str, weights: str
) -> dict[str, Any]:
    """The record of a run that did not end: that too is a measurement. It holds what the run told before."""
    told = error.result
    return {
        "record_version": VERSION,
        "tool": {"name": "hubaudit", "version": __version__},
        "outcome": error.outcome,
        "message": error.message,
        "subject": {"repo_id": repo_id, "revision": None, "commit": None},
        "config": dict(config),
        "workload": _asked(workload),
        "device": device,
        "weights": weights,
        "measures": told.get("measures", ""),
        "environment": told.get("environment", {"python": "", "system": "", "device": device, "libraries": {}}),
        "phases": list(told.get("phases", ())),
        "figures": [],
        "formula_lacks": [],
        "exact_reason": None,
        "cache": None,
        "rests": [],
        "peak_resident_bytes": told.get("peak_resident_bytes"),
    }


def to_text(record: Mapping[str, Any] | list[dict[str, Any]]) -> str:
    """A record, or several, as a file."""
    return json.dumps(record, indent=1) + "\n"


def read(path: Path) -> tuple[dict[str, Any], ...]:
    """The records of a file, which holds one, a list, or one a line.

    Raises:
        CannotAuditError: it is no record, and where.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = (
            [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".jsonl" else json.loads(text)
        )
    except (OSError, ValueError, RecursionError) as error:
        raise CannotAuditError(f"`{path.name}` holds no records: {error}") from None
    records = found if isinstance(found, list) else [found]
    for number, record in enumerate(records):
        check(record, f"{path.name}[{number}]")
    return tuple(records)


def workload_of(record: Mapping[str, Any]) -> Workload:
    """The workload that a record was measured with."""
    asked: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in record["workload"].items()
    }
    return Workload(**asked)


def check(value: Any, where: str, schema: Mapping[str, Any] = SCHEMA) -> None:
    """Raise where ``value`` breaks the schema, with the path to it.

    Raises:
        CannotAuditError: what is wrong and where.
    """
    kinds = schema.get("type")
    if kinds is not None and not _is_a(value, [kinds] if isinstance(kinds, str) else kinds):
        raise CannotAuditError(f"{where} is a {type(value).__name__}, not {kinds}")
    if "const" in schema and (isinstance(value, bool) or value != schema["const"]):
        raise CannotAuditError(f"{where} is {shown(value)}, not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        raise CannotAuditError(f"{where} is {shown(value)}, none of {schema['enum']}")
    if "minimum" in schema and value is not None and value < schema["minimum"]:
        raise CannotAuditError(f"{where} is {value}, less than {schema['minimum']}")
    for name in schema.get("required", ()):
        if name not in value:
            raise CannotAuditError(f"{where} has no `{name}`")
    for name, inner in schema.get("properties", {}).items():
        if name in value:
            check(value[name], f"{where}.{name}", inner)
    for number, item in enumerate(value if "items" in schema else ()):
        check(item, f"{where}[{number}]", schema["items"])


def _is_a(value: Any, kinds: list[str]) -> bool:
    if isinstance(value, bool):
        return False
    return any(isinstance(value, _TYPES[kind]) for kind in kinds)


def _asked(workload: Workload) -> dict[str, Any]:
    found = {one.name: getattr(workload, one.name) for one in fields(workload)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in found.items()
        if value != getattr(Workload(), name) or name == "mode"
    }


def _plain(row: Any) -> dict[str, Any]:
    return {one.name: getattr(row, one.name) for one in fields(row)}
