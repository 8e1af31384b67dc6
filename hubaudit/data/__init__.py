"""Tables of facts, each row with its source, and the one way to load them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hubaudit.data.by_row import json_with_rows, toml_by_key

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Written with one row a line, of which an answer needs one or two out of hundreds.
_ONE_ROW_A_LINE = frozenset({"config_defaults.json"})


@cache
def table(name: str) -> Mapping[str, Any]:
    """The table ``hubaudit/data/<name>`` (``.toml`` or ``.json``), read once per process, of which TOML is parsed key by key, as it is needed.

    Callers must not change it.
    """
    text = text_of(name)
    if name in _ONE_ROW_A_LINE:
        return json_with_rows(text)
    if name.endswith(".toml"):
        return toml_by_key(text)
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def text_of(name: str) -> str:
    """The table as it is written."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
