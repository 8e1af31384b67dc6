"""Tables parsed row by row say what they say when parsed whole."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files

import pytest

from hubaudit.data import table, text_of
from hubaudit.data.by_row import toml_by_key, toml_row, toml_with_rows
from hubaudit.facts import skeleton_tables


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


def test_the_skeletons_row_by_row() -> None:
    """Every model type, block and set of heads is what ``tomllib`` reads of the whole files; no name stands in two of them."""
    whole = [tomllib.loads(text_of(name)) for name in skeleton_tables.files()]
    rows = [(model_type, row) for file in whole for row in file.get("model", ()) for model_type in row["types"]]
    assert dict(rows) == dict(skeleton_tables.models())
    assert len(rows) == len(skeleton_tables.models()) > 100
    for kind, by_name in (("block", skeleton_tables.blocks()), ("heads", skeleton_tables.heads())):
        found = [(name, entry) for file in whole for name, entry in file.get(kind, {}).items()]
        assert (dict(found), len(found)) == (dict(by_name), len(by_name))
    assert set().union(*whole) == {"parts", "model", "block", "heads"}


def test_a_skeleton_without_types_is_no_row() -> None:
    """A row that was written wrongly is not lost in silence."""
    with pytest.raises(ValueError, match="without types"):
        skeleton_tables._types('[[model]]\nsource = "x"\n')


@pytest.mark.parametrize(
    "name", sorted(path.name for path in files("hubaudit.data").iterdir() if path.name.endswith(".toml"))
)
def test_tables_key_by_key(name: str) -> None:
    """Every table is what ``tomllib`` reads of its whole file, key by key and in the same order."""
    whole = tomllib.loads(text_of(name))
    by_key = toml_by_key(text_of(name))
    assert (list(by_key), len(by_key), dict(by_key)) == (list(whole), len(whole), whole)
    assert "no such key" not in by_key
