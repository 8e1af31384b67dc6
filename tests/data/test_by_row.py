"""Tables parsed row by row say what they say when parsed whole."""

from __future__ import annotations

import json
import tomllib

import pytest

from hubaudit.data import table, text_of
from hubaudit.data.by_row import toml_row, toml_with_rows


def test_the_class_defaults_row_by_row() -> None:
    """Every row, and what stands beside them, is what ``json`` reads of the whole file."""
    whole = json.loads(text_of("config_defaults.json"))
    by_row = table("config_defaults.json")
    assert list(by_row) == list(whole)
    rows = by_row["model_types"]
    assert (len(rows), list(rows), dict(rows)) == (
        len(whole["model_types"]),
        list(whole["model_types"]),
        whole["model_types"],
    )
    assert {key: value for key, value in by_row.items() if key != "model_types"} == {
        key: value for key, value in whole.items() if key != "model_types"
    }
    assert "llama" in rows
    assert "no such type" not in rows
    assert rows.get("no such type") is None


@pytest.mark.parametrize("name", ["layer_plans.toml", "layer_plans_remote.toml"])
def test_the_layer_plans_row_by_row(name: str) -> None:
    """Every row with its sub-tables, and what stands beside them, is what ``tomllib`` reads of the whole file."""
    whole = tomllib.loads(text_of(name))
    beside, rows = toml_with_rows(text_of(name), "plan")
    assert beside == {key: value for key, value in whole.items() if key != "plan"}
    assert [toml_row(text, "plan") for _, text in rows] == whole["plan"]
    assert [types for types, _ in rows] == [tuple(row["types"]) for row in whole["plan"]]


def test_a_row_without_types_is_no_row() -> None:
    """A table that was written wrongly does not lose a row in silence."""
    with pytest.raises(ValueError, match="without types"):
        toml_with_rows('[[plan]]\nsource = "x"\n', "plan")
