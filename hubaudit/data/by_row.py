"""Large tables of which one answer needs a row or two: the text is cut into rows, and a row is parsed when it is asked for."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TOML_TABLE = re.compile(r"^(?=\[)", re.MULTILINE)
_TOML_HEADER = re.compile(r"^\[(\[)?([\w.-]+)\]\]?$", re.MULTILINE)
_TOML_TYPES = re.compile(r"^types = \[(.*?)\]", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')


class Rows(Mapping[str, Any]):
    """Rows by name; reads like a dict, and parses each row once, when it is first asked for. Some may be parsed beforehand."""

    def __init__(
        self, texts: Mapping[str, str], parse: Callable[[str], Any], parsed: Mapping[str, Any] | None = None
    ) -> None:
        self._texts = dict.fromkeys(parsed or (), "") | dict(texts)
        self._parse = parse
        self._parsed: dict[str, Any] = dict(parsed or {})

    def __getitem__(self, name: str) -> Any:
        if name not in self._parsed:
            self._parsed[name] = self._parse(self._texts[name])
        return self._parsed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def json_with_rows(text: str) -> dict[str, Any]:
    """A JSON object whose last member holds its rows, one a line; the members before it stand on a line each."""
    head, opening, rest = text.partition(": {\n")
    body, _, tail = rest.rpartition("\n}")
    body, _, _ = body.rpartition("\n}")
    document: dict[str, Any] = json.loads(f"{head}{opening}}}{tail}}}")
    texts = {}
    for line in body.split("\n"):
        name, _, row = line.partition(": ")
        texts[json.loads(name)] = row.removesuffix(",")
    document[next(reversed(document))] = Rows(texts, json.loads)
    return document


def toml_with_rows(text: str, array: str) -> tuple[dict[str, Any], list[tuple[tuple[str, ...], str]]]:
    """A TOML document cut at its ``[[array]]`` tables: what stands beside them, parsed, and of each its ``types`` and its text.

    A row starts with its list of ``types``; no line of a longer value starts with ``[``. :func:`toml_row` parses it.
    """
    beside: list[str] = []
    rows: list[str] = []
    for part in _TOML_TABLE.split(text):
        if part.startswith(f"[[{array}]]"):
            rows.append(part)
        elif part.startswith(f"[{array}."):
            rows[-1] += part
        else:
            beside.append(part)
    return tomllib.loads("".join(beside)), [(_types(row), row) for row in rows]


def toml_row(text: str, array: str) -> dict[str, Any]:
    """One row that :func:`toml_with_rows` cut out."""
    row: dict[str, Any] = tomllib.loads(text)[array][0]
    return row


def toml_parts(text: str) -> Iterator[tuple[str, str]]:
    """A TOML document cut at its headers, each part a document of its own: its header's name ("" for what stands before the first) and text.

    The tables of an ``[[array]]`` row belong to it. No line of a longer value may look like a header.
    """
    name, start, array = "", 0, None
    for header in _TOML_HEADER.finditer(text):
        if array is not None and header[2].startswith(array):
            continue
        yield name, text[start : header.start()]
        name, start = header[2], header.start()
        array = f"{name}." if header[1] else None
    yield name, text[start:]


def toml_by_key(text: str) -> Mapping[str, Any]:
    """A TOML document as :func:`toml_parts` cuts it, of which each key is parsed when it is asked for."""
    texts: dict[str, str] = {}
    head = ""
    for name, part in toml_parts(text):
        key = name.partition(".")[0]
        if key:
            texts[key] = texts.get(key, "") + part
        else:
            head = part

    def only(text: str) -> Any:
        (value,) = tomllib.loads(text).values()
        return value

    return Rows(texts, only, tomllib.loads(head))


def _types(row: str) -> tuple[str, ...]:
    found = _TOML_TYPES.search(row)
    if found is None:
        raise ValueError(f"a row without types: {row[:80]!r}")
    return tuple(_QUOTED.findall(found[1]))
