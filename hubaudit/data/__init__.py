"""Tables of facts, each row with its source, and the one way to load them."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from hubaudit.data.by_row import json_with_rows

#: Written with one row a line, of which an answer needs one or two out of hundreds.
_ONE_ROW_A_LINE = frozenset({"config_defaults.json"})


@cache
def table(name: str) -> dict[str, Any]:
    """The parsed table ``hubaudit/data/<name>`` (``.toml`` or ``.json``), read once per process. Callers must not change it."""
    text = text_of(name)
    if name in _ONE_ROW_A_LINE:
        return json_with_rows(text)
    parsed: dict[str, Any] = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    return parsed


def text_of(name: str) -> str:
    """The table as it is written."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
