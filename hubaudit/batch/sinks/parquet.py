"""Parquet, for analysis: one table of models with their facts, one of estimates with components and verdicts nested in them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hubaudit.batch.flat import WORKLOAD, audit_cells, fit_cells, model_cells
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MODELS = "models.parquet"
ESTIMATES = "estimates.parquet"
_ROWS_AT_ONCE = 1000
_TEXTS = (
    "name", "repo_id", "commit", "state", "library", "architecture", "model_type", "family", "dtype", "format", "quantization",
    "error_kind", "error", "audited_at",
)  # fmt: skip
_NUMBERS = (
    "parameters", "active_parameters", "layers", "hidden_size", "intermediate_size", "attention_heads", "kv_heads", "head_dim",
    "vocab_size", "max_positions", "file_bytes", "stored_bytes", "resident_bytes", "findings", "errors",
)  # fmt: skip
_WORKLOAD_NUMBERS = ("batch_size", "prompt_tokens", "new_tokens")
_SIZES = ("weights_bytes", "kv_cache_bytes", "total_bytes", "low_bytes", "high_bytes")
_LARGEST = 2**63


class ParquetSink:
    """Both files while they are written, a thousand rows at once."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        try:
            arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            raise UsageError("writing Parquet needs pyarrow", hint="pip install 'hubaudit[parquet]'") from None
        self._tables = [
            _Table(arrow, parquet, folder / MODELS, _models_schema(arrow)),
            _Table(arrow, parquet, folder / ESTIMATES, _estimates_schema(arrow)),
        ]

    def put(self, row: dict[str, Any]) -> None:
        """One model, and its estimates."""
        models, estimates = self._tables
        cells = model_cells(row)
        models.put(cells)
        for audit in row["document"].get("audits", ()):
            estimates.put({"name": cells["name"], "commit": cells["commit"], **_estimate(audit)})

    def close(self) -> tuple[str, ...]:
        """No more rows."""
        for table in self._tables:
            table.close()
        return (MODELS, ESTIMATES)


open_sink = ParquetSink


class _Table:
    def __init__(self, arrow: Any, parquet: Any, path: Path, schema: Any) -> None:
        self._arrow = arrow
        self._schema = schema
        self._writer = parquet.ParquetWriter(path, schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def put(self, cells: dict[str, Any]) -> None:
        self._rows.append({name: _storable(cells.get(name)) for name in self._schema.names})
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def _models_schema(arrow: Any) -> Any:
    fields = [(name, arrow.string()) for name in _TEXTS] + [(name, arrow.int64()) for name in _NUMBERS]
    return arrow.schema(fields)


def _estimates_schema(arrow: Any) -> Any:
    component = arrow.struct(
        [
            ("id", arrow.string()),
            ("category", arrow.string()),
            ("bytes", arrow.int64()),
            ("low_bytes", arrow.int64()),
            ("high_bytes", arrow.int64()),
            ("exactness", arrow.string()),
            ("formula", arrow.string()),
        ]
    )
    fit = arrow.struct(
        [
            ("device", arrow.string()),
            ("verdict", arrow.string()),
            ("usable_bytes", arrow.int64()),
            ("headroom_bytes", arrow.int64()),
            ("max_batch", arrow.int64()),
            ("max_context", arrow.int64()),
            ("best_precision", arrow.string()),
            ("min_devices", arrow.int64()),
        ]
    )
    workload = [
        (f"workload_{name}", arrow.int64() if name in _WORKLOAD_NUMBERS else arrow.string()) for name in WORKLOAD
    ]
    sizes = [(name, arrow.int64()) for name in _SIZES]
    nested = [
        ("omitted", arrow.string()),
        ("error", arrow.string()),
        ("components", arrow.list_(component)),
        ("fit", arrow.list_(fit)),
    ]
    return arrow.schema([("name", arrow.string()), ("commit", arrow.string()), *workload, *sizes, *nested])


def _estimate(audit: dict[str, Any]) -> dict[str, Any]:
    components = [{name: _storable(value) for name, value in part.items()} for part in _components(audit)]
    fits = [{**{key: _storable(value) for key, value in fit.items()}, "device": name} for name, fit in fit_cells(audit)]
    return {**audit_cells(audit), "components": components, "fit": fits}


def _components(audit: dict[str, Any]) -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = audit["estimate"]["components"] if "estimate" in audit else []
    return components


def _storable(value: Any) -> Any:
    """A count too large for the column, which no real model has, is unknown; text that is no text is spelled out."""
    if type(value) is int and not -_LARGEST <= value < _LARGEST:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
