"""The rows of the layer-plan tables, and which of them describes a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hubaudit.data import table, text_of
from hubaudit.data.by_row import Rows, toml_row, toml_with_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.facts.config_reader import ConfigReader

TABLES = ("layer_plans.toml", "layer_plans_remote.toml")
CACHELESS = "layer_plans_cacheless.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How the layers of some model types follow from their configuration.

    ``layers`` is the formula of their number; ``types_key`` the key whose list names each layer's type where the file has it, ``type`` the
    class's rule where it has not (a formula over ``layer``), ``kinds`` the kind of each type (a name of layer_kinds.toml, or a formula).
    ``dimensions`` are the names that formulas use beside the configuration's own keys; ``shares`` is the formula of the layer whose cache
    a layer reads instead of an own one, null where it has its own; ``shared_kind`` the kind of what such a layer keeps all the same.
    ``keeps_nothing`` is true of the one row for models without a cache.
    """

    types: tuple[str, ...]
    source: str
    layers: str
    types_key: str | None
    type: str | None
    kinds: Mapping[str, str]
    dimensions: Mapping[str, str]
    shares: str | None
    shared_kind: str
    keeps_nothing: bool = False


def row_for(config: ConfigReader) -> tuple[Row, ConfigReader] | str:
    """The row that describes ``config`` and the section it speaks of, or the reason why there is none."""
    reason = unknown_types().get(config.model_type or "")
    if reason is not None:
        return reason
    if config.model_type in _keep_nothing().types:
        return _keep_nothing(), config
    rows = all_rows()
    model = config.language_model()
    if model.model_type is None:
        return "config.json names no model type"
    row = rows.get(model.model_type)
    if row is None:
        return f"what {model.model_type[:40]!a} keeps between tokens is not in the table of layer plans"
    return row, model


@cache
def all_rows() -> Mapping[str, Row]:
    """Every row, by each of the model types it describes."""
    texts: dict[str, str] = {}
    defaults: dict[str, Mapping[str, Any]] = {}
    for name in TABLES:
        document, rows = _document(name)
        for types, text in rows:
            defaults[text] = document["default"]
            for model_type in types:
                if model_type in texts:
                    raise ValueError(f"{model_type} has two rows")
                texts[model_type] = text
    return Rows(texts, cache(lambda text: _row(toml_row(text, "plan"), defaults[text])))


@cache
def _document(name: str) -> tuple[Mapping[str, Any], list[tuple[tuple[str, ...], str]]]:
    return toml_with_rows(text_of(name), "plan")


@cache
def _keep_nothing() -> Row:
    """The row of every model type that has no class with a cache. How many layers such a model has need not be known."""
    document = table(CACHELESS)
    return Row(
        types=tuple(document["types"]),
        source=document["source"],
        layers="known('num_hidden_layers') or 0",
        types_key=None,
        type="'full_attention'",
        kinds={"full_attention": "none"},
        dimensions={},
        shares=None,
        shared_kind="none",
        keeps_nothing=True,
    )


@cache
def unknown_types() -> Mapping[str, str]:
    """Model types whose caches cannot be told from the configuration, and why."""
    return {model_type: row["reason"] for row in _document(TABLES[0])[0]["unknown"] for model_type in row["types"]}


def _row(raw: Mapping[str, Any], default: Mapping[str, Any]) -> Row:
    return Row(
        types=tuple(raw["types"]),
        source=raw["source"],
        layers=raw.get("layers", default["layers"]),
        types_key=raw.get("types_key", default["types_key"]) or None,
        type=raw.get("type"),
        kinds={**default["kinds"], **raw.get("kinds", {})},
        dimensions={**default["dimensions"], **raw.get("dimensions", {})},
        shares=raw.get("shares"),
        shared_kind=raw.get("shared_kind", "none"),
    )
