"""Tables of facts, each row with its source, and the one way to load them."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def table(name: str) -> dict[str, Any]:
    """The parsed table ``hubaudit/data/<name>`` (``.toml`` or ``.json``), read once per process. Callers must not change it."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    parsed: dict[str, Any] = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    return parsed
