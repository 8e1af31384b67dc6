"""CSV: a line for each model and workload, with a column for each device."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from hubaudit.batch.flat import FACTS, WORKLOAD, audit_cells, device_names, fit_cells, model_cells
from hubaudit.report.tabular import csv_cell

if TYPE_CHECKING:
    from pathlib import Path

NAME = "models.csv"
_COLUMNS = (
    "name", "repo_id", "commit", "state", "parameters", "active_parameters", *FACTS, "quantization",
    *(f"workload_{name}" for name in WORKLOAD), "weights_bytes", "kv_cache_bytes", "total_bytes", "low_bytes", "high_bytes",
    "omitted",
)  # fmt: skip
_LAST = ("findings", "errors", "error_kind", "error", "audited_at")


class CsvSink:
    """The file while it is written. A device's column holds the verdict."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        devices = [f"fit {name}" for name in device_names(plan)]
        self._columns = (*_COLUMNS, *dict.fromkeys(devices), *_LAST)
        self._file = (folder / NAME).open("w", encoding="utf-8", errors="backslashreplace", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(map(csv_cell, self._columns))

    def put(self, row: dict[str, Any]) -> None:
        """One model: a line for each workload, or one that says why there is none."""
        model = model_cells(row)
        for audit in row["document"].get("audits") or (None,):
            cells = dict(model)
            if audit is not None:
                cells |= audit_cells(audit)
                cells |= {f"fit {name}": fit["verdict"] for name, fit in fit_cells(audit)}
            self._writer.writerow([csv_cell(cells.get(name)) for name in self._columns])

    def close(self) -> tuple[str, ...]:
        """No more rows."""
        self._file.close()
        return (NAME,)


open_sink = CsvSink
