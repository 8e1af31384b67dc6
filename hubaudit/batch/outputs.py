"""What is made of a journal: one file, or two, for each format, row by row, so that any length of list will do."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hubaudit.batch.journal import Rows


class Sink(Protocol):
    """One format's file while it is written."""

    def put(self, row: dict[str, Any]) -> None:
        """One model's row."""

    def close(self) -> tuple[str, ...]:
        """No more rows; the names of the files that were written."""


#: Format → the module that writes it, which has ``open_sink(folder, plan)``.
FORMATS = {
    "csv": "hubaudit.batch.sinks.csv",
    "markdown": "hubaudit.batch.sinks.markdown",
    "html": "hubaudit.batch.sinks.html",
    "parquet": "hubaudit.batch.sinks.parquet",
}


def write_outputs(folder: Path, rows: Rows, formats: Iterable[str]) -> tuple[str, ...]:
    """Write every format in one pass over the journal; returns the files' names.

    Raises:
        UsageError: a format's library is missing, or a file cannot be written.
    """
    try:
        with ExitStack() as undo:
            sinks = [_opened(name, folder, rows.plan, undo.callback) for name in dict.fromkeys(formats)]
            for row in rows if sinks else ():
                for sink in sinks:
                    sink.put(row)
            written = tuple(name for sink in sinks for name in sink.close())
            undo.pop_all()
    except OSError as error:
        raise UsageError(f"cannot write to `{folder}`: {error.strerror or error}") from None
    return written


def _opened(name: str, folder: Path, plan: dict[str, Any], undo: Callable[..., Any]) -> Sink:
    sink: Sink = import_module(FORMATS[name]).open_sink(folder, plan)
    undo(_closed_quietly, sink)
    return sink


def _closed_quietly(sink: Sink) -> None:
    try:
        sink.close()
    except Exception:  # noqa: BLE001 - another failure is on its way out
        return
