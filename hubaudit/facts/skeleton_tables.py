"""The skeleton tables, of which an answer needs a row and some ten blocks out of hundreds: each is parsed when it is asked for."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from hubaudit.data import text_of
from hubaudit.data.by_row import Rows, toml_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

Texts: TypeAlias = dict[str, str]
MAIN = "skeletons.toml"
_TYPES = re.compile(r"^types = \{(.*)\}$", re.MULTILINE)
_KEY = re.compile(r'([\w-]+) = "[^"]*"')


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """The row of every model type that is described."""
    return Rows(_texts()[0], cache(lambda text: tomllib.loads(text)["model"][0]))


@cache
def blocks() -> Mapping[str, Mapping[str, Any]]:
    """Blocks of the layout language, by name."""
    return Rows(_texts()[1], _only)


@cache
def heads() -> Mapping[str, Mapping[str, str]]:
    """Sets of heads, by name."""
    return Rows(_texts()[2], _only)


def _only(text: str) -> Mapping[str, Any]:
    """The one table ``[kind.name]`` that ``text`` holds."""
    (named,) = tomllib.loads(text).values()
    (entry,) = named.values()
    found: Mapping[str, Any] = entry
    return found


def files() -> tuple[str, ...]:
    """The files that the tables are spread over."""
    parts = tomllib.loads(next(toml_parts(text_of(MAIN)))[1])["parts"]
    return (MAIN, *parts)


@cache
def _texts() -> tuple[Texts, Texts, Texts]:
    """What the files hold for each model type, block and set of heads, as it is written."""
    rows: Texts = {}
    kinds: dict[str, Texts] = {"block": {}, "heads": {}}
    for file in files():
        for header, text in toml_parts(text_of(file)):
            kind, _, name = header.partition(".")
            if kind == "model":
                rows |= dict.fromkeys(_types(text), text)
            elif name:
                kinds[kind][name] = text
    return rows, kinds["block"], kinds["heads"]


def _types(row: str) -> list[str]:
    found = _TYPES.search(row)
    if found is None:
        raise ValueError(f"a row without types: {row[:80]!r}")
    return _KEY.findall(found[1])
