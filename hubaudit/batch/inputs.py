"""What a batch is over: names out of files, streams, tables and folders, one by one, so that a list may be longer than memory."""

from __future__ import annotations

import csv
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hubaudit.batch.plan import Item
from hubaudit.errors import UsageError
from hubaudit.formats.weight_names import weight_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Columns that hold a model's name, where none is named: the Hub's own words, hubaudit's and those of common lists.
COLUMNS = ("repo_id", "model_id", "modelId", "model", "model_name", "id", "name", "repo", "subject")
_TABLES = {".csv": ",", ".tsv": "\t"}
_MARKS = ("config.json", "model_index.json", "modules.json", "adapter_config.json")
_MAX_DEPTH = 8
_MAX_CELL = 1 << 20
_MAX_LINE = 1 << 24
_MAX_NAME = 10_000


def items_of(sources: Iterable[str], column: str | None = None, *, first: int = 0) -> Iterator[Item]:
    """Every name that the sources hold, as an item with its place in the list.

    A source is ``-`` (standard input), a file (``.csv``, ``.tsv``, ``.parquet``, ``.jsonl``, else a name on each line, ``#`` before a remark),
    a folder (a model, or models in folders of it), or else a name itself.

    Args:
        sources: what the user named.
        column: the column, or key, of the name in tables.
        first: the place of the first one.

    Raises:
        UsageError: a source cannot be read, or a table has no such column.
    """
    names = (name for source in sources for name in _names(source, column))
    for at, name in enumerate(names, first):
        if len(name) > _MAX_NAME:
            raise UsageError(f"the list holds a name of {len(name):,} characters: {name[:100]!a}")
        yield Item(name=name, position=at)


def can_count(sources: Iterable[str]) -> bool:
    """Whether the names can be counted before they are read: not those of a stream."""
    return all(source != "-" and not _is_stream(Path(source)) for source in sources)


def _names(source: str, column: str | None) -> Iterator[str]:
    path = Path(source).expanduser()
    try:
        if source == "-":
            if sys.stdin is None:
                raise ValueError("it is closed")
            lines = _lines(sys.stdin, "standard input")
            yield from _of_table(lines, ",", column, "standard input") if column else _of_lines(lines)
        elif path.is_dir():
            yield from _of_folder(path)
        elif _is_list(path):
            yield from _of_file(path, column)
        else:
            yield source
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        where = "standard input" if source == "-" else f"`{source[:200]}`"
        raise UsageError(f"cannot read {where}: {reason}") from None


def _is_list(path: Path) -> bool:
    """A file or a pipe, but for a weight file or a bundle, which are models themselves."""
    if not path.exists():
        return False
    return weight_name(path.name) is None and not path.name.endswith((".json", ".json.gz"))


def _is_stream(path: Path) -> bool:
    try:
        return path.exists() and not path.is_file() and not path.is_dir()
    except (OSError, ValueError):
        return False


def _of_file(path: Path, column: str | None) -> Iterator[str]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _of_parquet(path, column)
        return
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = _lines(file, path.name)
        if suffix == ".jsonl":
            yield from _of_objects(lines, column, path.name)
        elif suffix in _TABLES or column is not None:
            yield from _of_table(lines, _TABLES.get(suffix, ","), column, path.name)
        else:
            yield from _of_lines(lines)


def _lines(file: IO[str], where: str) -> Iterator[str]:
    """The lines, none of them longer than memory: a device, or a file that is no list, may have no end of line at all."""
    while line := file.readline(_MAX_LINE):
        if "\0" in line:
            raise UsageError(f"`{where}` is no list: it holds null bytes", hint="a list is UTF-8 text")
        if len(line) == _MAX_LINE:
            raise UsageError(f"`{where}` has a line of more than {_MAX_LINE:,} characters")
        yield line


def _of_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        name = line.partition(" #")[0].strip()
        if name and not name.startswith("#"):
            yield name


def _of_table(lines: Iterable[str], delimiter: str, column: str | None, where: str) -> Iterator[str]:
    csv.field_size_limit(_MAX_CELL)
    rows = csv.reader(lines, delimiter=delimiter)
    at = _column(next(rows, []), column, where)
    for row in rows:
        if len(row) > at and row[at].strip():
            yield row[at].strip()


def _of_objects(lines: Iterable[str], column: str | None, where: str) -> Iterator[str]:
    chosen: str | None = None
    for line in lines:
        if not line.strip():
            continue
        row = json.loads(line)
        if not isinstance(row, dict):
            raise UsageError(f"`{where}` holds lines that are no JSON objects")
        if chosen is None:
            keys = list(row)
            chosen = keys[_column(keys, column, where)]
        name = row.get(chosen)
        if isinstance(name, str) and name.strip():
            yield name.strip()


def _of_parquet(path: Path, column: str | None) -> Iterator[str]:
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("reading Parquet needs pyarrow", hint="pip install 'hubaudit[parquet]'") from None
    with parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        chosen = names[_column(names, column, path.name)]
        for batch in file.iter_batches(batch_size=10_000, columns=[chosen]):
            yield from (
                value.strip() for value in batch.column(0).to_pylist() if isinstance(value, str) and value.strip()
            )


def _column(head: list[str], column: str | None, where: str) -> int:
    """Where the names are: in the column that was named, else in the only one that can be meant."""
    found = [name for name in ((column,) if column is not None else COLUMNS) if name in head]
    if not found:
        asked = f"column `{column}`" if column is not None else "column that is known to hold names"
        raise UsageError(
            f"`{where}` has no {asked}; it has {', '.join(head[:20])[:500] or 'none'}", hint="name it with --column"
        )
    return head.index(found[0])


def _of_folder(folder: Path) -> Iterator[str]:
    """The folder itself where it is a model, else the models in it."""
    found = False
    for path, folders, files in os.walk(folder, onerror=_raise):
        depth = len(Path(path).relative_to(folder).parts)
        if any(name in _MARKS or weight_name(name) is not None for name in files):
            found = True
            folders.clear()
            yield path
        elif depth >= _MAX_DEPTH:
            folders.clear()
        else:
            folders[:] = sorted(name for name in folders if name != "blobs" and name != ".git")
    if not found:
        raise UsageError(f"no model in `{folder}`", hint="a model is a folder with a config.json, or with weights")


def _raise(error: OSError) -> None:
    raise error
