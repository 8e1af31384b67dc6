"""A repository's files → what a snapshot holds of them: what is read, side by side, and what becomes of a file that cannot be."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hubaudit.errors import MalformedFileError, NotFoundError
from hubaudit.formats.documents import MAX_CONFIG_BYTES, MAX_INDEX_BYTES, declared_total, parse_index, parse_object
from hubaudit.formats.safetensors import read_safetensors, read_served_header
from hubaudit.formats.selection import select_weights
from hubaudit.types import Config, Json, ReadProblem, WeightFile, WeightIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hubaudit.formats.selection import Selection
    from hubaudit.hub.reader import RepoReader

T = TypeVar("T")

CONFIGS = ("config.json",)


@dataclass(kw_only=True)
class Contents:
    """What was read of one repository."""

    configs: dict[str, Config] = field(default_factory=dict)
    weights: list[WeightFile] = field(default_factory=list)
    indexes: list[WeightIndex] = field(default_factory=list)
    problems: list[ReadProblem] = field(default_factory=list)


def read_contents(reader: RepoReader) -> Contents:
    """Read the configs and the headers of the chosen weights.

    A file that breaks its format's rules, or is named and not there, becomes a problem in the result, and the rest is still read.
    A failure of the network or of access ends the audit, because half an answer would be a wrong one.
    """
    with ThreadPoolExecutor(max_workers=reader.parallel, thread_name_prefix="hubaudit") as pool:
        try:
            contents = _Assembly(reader, pool).read()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what waits its turn is asked for nothing
            raise
    contents.weights.sort(key=lambda file: file.path)
    contents.problems.sort(key=lambda problem: problem.path)
    return contents


class _Assembly:
    """One reading of one repository."""

    def __init__(self, reader: RepoReader, pool: ThreadPoolExecutor) -> None:
        self._reader = reader
        self._pool = pool
        self._sizes = {file.path: file.size_bytes for file in reader.files}
        self._contents = Contents()

    def read(self) -> Contents:
        configs = {name: self._pool.submit(self._config, name) for name in CONFIGS if name in self._sizes}
        selection = select_weights(self._reader.files)
        if selection.index is None:
            self._take_loose(self._submit(selection.files), selection.missing)
        else:
            served = self._reader.headers_at_once(selection.index)
            if served is not None and served[1] and served[1].keys() >= set(selection.files):
                self._take_served(selection.index, *served)
            else:
                self._take_indexed(selection.index, selection)
        for name, config in configs.items():
            value = self._or_problem(name, config.result)
            if value is not None:
                self._contents.configs[name] = value
        return self._contents

    def _take_loose(self, headers: Mapping[str, Future[WeightFile]], missing: tuple[str, ...]) -> None:
        """One file, or shards that no index names."""
        self._take_headers(headers)
        if missing:
            more = f", nor are {len(missing) - 1} more of its shards" if len(missing) > 1 else ""
            self._problem(missing[0], f"not in the repository{more}")

    def _config(self, name: str) -> Config:
        return parse_object(self._reader.read(name, MAX_CONFIG_BYTES), name)

    def _index(self, path: str) -> WeightIndex:
        return parse_index(self._reader.read(path, MAX_INDEX_BYTES), path)

    def _submit(self, paths: tuple[str, ...] | list[str]) -> dict[str, Future[WeightFile]]:
        return {path: self._pool.submit(self._header, path) for path in paths}

    def _header(self, path: str) -> WeightFile:
        return read_safetensors(self._reader.open(path))

    def _take_headers(self, headers: Mapping[str, Future[WeightFile]]) -> None:
        for path, header in headers.items():
            weights = self._or_problem(path, header.result)
            if weights is not None:
                self._contents.weights.append(weights)

    def _take_indexed(self, index_path: str, selection: Selection) -> None:
        """Shards that look like it by name are read while the index is; the index has the last word on which of them count."""
        pending = self._pool.submit(self._index, index_path)
        headers = self._submit(selection.files)
        index = self._or_problem(index_path, pending.result)
        if index is None:
            self._take_loose(headers, selection.missing)
            return
        self._contents.indexes.append(index)
        named = sorted(set(index.weight_map.values()))
        self._take_headers({path: header for path, header in headers.items() if path in set(named)})
        self._take_headers(self._submit([path for path in named if path in self._sizes and path not in headers]))
        for path in named:
            if path not in self._sizes:
                self._problem(path, f"named by `{index_path}` but not in the repository")
        for path in set(headers).difference(named):
            self._problem(path, f"not named by `{index_path}`; not counted")

    def _take_served(self, index_path: str, metadata: Json, headers: Mapping[str, Json]) -> None:
        """What the Hub serves of all shards at once. It leaves out the index's map, which repeats the names in the headers.

        Shards that look like it by name and are not served are for the index itself to judge, so then it is read (see ``read``).
        """
        self._contents.indexes.append(
            WeightIndex(path=index_path, total_size_bytes=declared_total(metadata), weight_map={})
        )
        for path, header in headers.items():
            if path not in self._sizes:
                self._problem(path, f"named by `{index_path}` but not in the repository")
                continue
            weights = self._or_problem(path, partial(self._served, path, header))
            if weights is not None:
                self._contents.weights.append(weights)

    def _served(self, path: str, header: Json) -> WeightFile:
        if not isinstance(header, dict):
            raise MalformedFileError(path, "the header is not a JSON object")
        return read_served_header(header, path, size_bytes=self._sizes[path])

    def _or_problem(self, path: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except MalformedFileError as error:
            self._problem(path, error.reason if error.offset is None else f"at byte {error.offset}: {error.reason}")
        except NotFoundError:
            self._problem(path, "in the listing, but the file itself is not there")
        return None

    def _problem(self, path: str, reason: str) -> None:
        self._contents.problems.append(ReadProblem(path=path, reason=reason))
