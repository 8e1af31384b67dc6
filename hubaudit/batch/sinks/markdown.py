"""Markdown: a page to paste, with a table for each workload and a list of what failed."""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Any

from hubaudit.batch.flat import audit_cells, device_names, fit_cells, model_cells, workload_words
from hubaudit.report.tabular import escaped
from hubaudit.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = "report.md"
_MARKS = {"fits": "fits", "tight": "tight", "no": "**no**", "unknown": "?"}
_FACTS = ("model", "architecture", "parameters", "layers", "on disk")


class MarkdownSink:
    """The file while it is written: each table waits in a file of its own until all rows have come."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self._path = folder / NAME
        self._devices = device_names(plan)
        self._workloads = [workload_words(workload) for workload in plan["workloads"]]
        self._tables = [_scratch() for _ in self._workloads]
        self._failures = _scratch()
        self._models = self._failed = 0

    def put(self, row: dict[str, Any]) -> None:
        """One model: a row in every table, or one among the failures."""
        cells = model_cells(row)
        self._models += 1
        if cells["error"] is not None:
            self._failed += 1
            self._failures.write(_line((cells["name"], row["state"], f"{cells['error_kind']}: {cells['error']}")))
            return
        known = (
            cells["name"], cells["architecture"] or "", _count(cells["parameters"]), _number(cells["layers"]), _size(cells["file_bytes"]),
        )  # fmt: skip
        for table, audit in zip(self._tables, row["document"]["audits"], strict=True):
            made = audit_cells(audit)
            verdicts = {name: _MARKS[fit["verdict"]] for name, fit in fit_cells(audit)}
            sizes = (
                _size(made.get("weights_bytes")),
                _size(made.get("kv_cache_bytes")),
                _total(made),
            )
            table.write(_line((*known, *sizes), [verdicts.get(name, "") for name in self._devices]))

    def close(self) -> tuple[str, ...]:
        """No more rows: put the page together."""
        with self._path.open("w", encoding="utf-8", errors="backslashreplace") as page:
            page.write(f"# Memory of {self._models:,} models\n")
            head = (*_FACTS, "weights", "KV cache", "total", *self._devices)
            for words, table in zip(self._workloads, self._tables, strict=True):
                page.write(f"\n## {escaped(words)}\n\n{_head(head)}")
                _pour(table, page)
            if self._failed:
                page.write(f"\n## Not audited: {self._failed:,}\n\n{_head(('model', 'state', 'reason'))}")
            _pour(self._failures, page)
        return (NAME,)


open_sink = MarkdownSink


def _scratch() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace")


def _pour(scratch: IO[str], page: IO[str]) -> None:
    scratch.seek(0)
    while some := scratch.read(1 << 16):
        page.write(some)
    scratch.close()


def _head(columns: Iterable[str]) -> str:
    names = list(columns)
    return f"{_line(names)}|{'---|' * len(names)}\n"


def _line(cells: Iterable[str], marks: Iterable[str] = ()) -> str:
    return "| " + " | ".join([*map(escaped, cells), *marks]) + " |\n"


def _size(number: int | None) -> str:
    return "" if number is None else format_bytes(number)


def _total(made: dict[str, Any]) -> str:
    """The whole need, the least that it can be, or why neither is known."""
    size = _size(made.get("total_bytes"))
    return f"at least {size}" if size and made["omitted"] else size or made["error"]


def _count(number: int | None) -> str:
    return "" if number is None else format_count(number)


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
