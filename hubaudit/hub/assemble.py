"""A repository's files → what a snapshot holds of them: what is read, side by side, and what becomes of a file that cannot be."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hubaudit.errors import MalformedFileError, NotFoundError
from hubaudit.formats.documents import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    declared_total,
    parse_array,
    parse_index,
    parse_object,
)
from hubaudit.formats.headers import read_header
from hubaudit.formats.parts import MODULES, PIPELINE
from hubaudit.formats.safetensors import read_served_header
from hubaudit.formats.weight_names import index_name, weight_name
from hubaudit.formats.weight_sets import size_of
from hubaudit.hub.layout import layout_of
from hubaudit.hub.problems import told
from hubaudit.types import Config, Json, ReadProblem, WeightFile, WeightIndex, WeightSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hubaudit.hub.reader import RepoReader
    from hubaudit.types import ProblemKind

T = TypeVar("T")


@dataclass(kw_only=True)
class Contents:
    """What was read of one repository, and which weights were not."""

    configs: dict[str, Config] = field(default_factory=dict)
    weights: list[WeightFile] = field(default_factory=list)
    indexes: list[WeightIndex] = field(default_factory=list)
    problems: list[ReadProblem] = field(default_factory=list)
    chosen: list[WeightSet] = field(default_factory=list)
    others: list[WeightSet] = field(default_factory=list)


def read_contents(reader: RepoReader, *, file: str | None = None) -> Contents:
    """Read the configs and the headers of the chosen weights, those of ``file`` where it is given.

    A file that breaks its format's rules, or is named and not there, becomes a problem in the result, and the rest is still read.
    A failure of the network or of access ends the audit, because half an answer would be a wrong one.

    Raises:
        CannotAuditError, NotFoundError: ``file`` is no weight file that can be read.
    """
    with ThreadPoolExecutor(max_workers=reader.parallel, thread_name_prefix="hubaudit") as pool:
        try:
            contents = _Assembly(reader, pool).read(file)
            named = None if file is not None else _named_by_config(contents)
            if named in {one.path for one in reader.files}:
                contents = _Assembly(reader, pool).read(named)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what waits its turn is asked for nothing
            raise
    contents.weights.sort(key=lambda one: one.path)
    contents.problems[:] = told(sorted(contents.problems, key=lambda problem: problem.path))
    return contents


def _named_by_config(contents: Contents) -> str | None:
    """The weights that a config names, where they are not those that were chosen: the key ``transformers_weights`` of transformers 5.23.0."""
    if len(contents.chosen) != 1 or not set(contents.configs).isdisjoint((MODULES, PIPELINE)):
        return None
    named = contents.configs.get("config.json", {}).get("transformers_weights")
    if not isinstance(named, str) or named in (contents.chosen[0].index, *contents.chosen[0].files):
        return None
    parsed = weight_name(named) or index_name(named)
    return named if parsed is not None and parsed.format == "safetensors" else None


class _Assembly:
    """One reading of one repository."""

    def __init__(self, reader: RepoReader, pool: ThreadPoolExecutor) -> None:
        self._reader = reader
        self._pool = pool
        self._sizes = {file.path: file.size_bytes for file in reader.files}
        self._contents = Contents()
        self._failure: Exception | None = None

    def read(self, file: str | None) -> Contents:
        layout = layout_of(self._reader.files, self._table, file=file)
        configs = {name: self._start(self._config, name) for name in layout.configs}
        chosen = layout.selection.chosen
        loose = {at: self._submit(one.files) for at, one in enumerate(chosen) if one.index is None}
        for at, one in enumerate(chosen):
            taken = self._take_loose(one, loose[at]) if one.index is None else self._take_sharded(one, one.index)
            self._contents.chosen.append(taken)
        for name, config in configs.items():
            value = self._or_problem(name, config.result)
            if value is not None:
                self._contents.configs[name] = value
        self._keep_others(layout.selection.others)
        return self._contents

    def _table(self, name: str) -> Config | None:
        """A table of contents, which decides what else is read."""
        value = self._or_problem(name, partial(self._config, name))
        if value is not None:
            self._contents.configs[name] = value
        return value

    def _keep_others(self, others: Iterable[WeightSet]) -> None:
        """Files that only an index knew to be its shards are none of the others."""
        read = {path for one in self._contents.chosen for path in one.files}
        self._contents.others += [one for one in others if not read.issuperset(one.files)]

    def _take_loose(self, one: WeightSet, headers: Mapping[str, Future[WeightFile]]) -> WeightSet:
        """One file, or shards that no index names."""
        self._take_headers(headers)
        if one.missing:
            more = f", nor are {len(one.missing) - 1} more of its shards" if len(one.missing) > 1 else ""
            self._problem(one.missing[0], f"not in the repository{more}", "missing")
        return one

    def _config(self, name: str) -> Config:
        content = self._reader.read(name, MAX_CONFIG_BYTES)
        return parse_array(content, name) if name == MODULES else parse_object(content, name)

    def _index(self, path: str) -> WeightIndex:
        return parse_index(self._reader.read(path, MAX_INDEX_BYTES), path)

    def _submit(self, paths: Iterable[str]) -> dict[str, Future[WeightFile]]:
        return {path: self._start(self._header, path) for path in paths}

    def _start(self, read: Callable[[str], T], path: str) -> Future[T]:
        return self._pool.submit(self._unless_failed, read, path)

    def _unless_failed(self, read: Callable[[str], T], path: str) -> T:
        """What failed for one file of a gated or unreachable repository fails for all: the first failure is theirs, and they ask for nothing."""
        if self._failure is not None:
            raise self._failure
        try:
            return read(path)
        except (MalformedFileError, NotFoundError):
            raise
        except Exception as error:
            self._failure = error
            raise

    def _header(self, path: str) -> WeightFile:
        return read_header(self._reader.open(path))

    def _take_headers(self, headers: Mapping[str, Future[WeightFile]]) -> None:
        for path, header in headers.items():
            weights = self._or_problem(path, header.result)
            if weights is not None:
                self._contents.weights.append(weights)

    def _take_sharded(self, one: WeightSet, index_path: str) -> WeightSet:
        """Shards under an index: all headers at once where the Hub serves them whole, else one by one."""
        served = self._reader.headers_at_once(index_path) if one.format == "safetensors" else None
        if served is None or not served[1]:
            return self._take_indexed(one, index_path)
        folder = index_path[: index_path.rfind("/") + 1]
        headers = {f"{folder}{path}": header for path, header in served[1].items()}
        if not headers.keys() >= set(one.files):
            return self._take_indexed(one, index_path)
        return self._take_served(one, index_path, served[0], headers)

    def _take_indexed(self, one: WeightSet, index_path: str) -> WeightSet:
        """Shards that look like it by name are read while the index is; the index has the last word on which of them count."""
        pending = self._start(self._index, index_path)
        headers = self._submit(one.files)
        index = self._or_problem(index_path, pending.result)
        if index is None:
            return self._take_loose(one, headers)
        self._contents.indexes.append(index)
        named = sorted(set(index.weight_map.values()))
        self._take_headers({path: header for path, header in headers.items() if path in set(named)})
        self._take_headers(self._submit([path for path in named if path in self._sizes and path not in headers]))
        for path in named:
            if path not in self._sizes:
                self._problem(path, f"named by `{index_path}` but not in the repository", "missing")
        for path in set(headers).difference(named):
            self._problem(path, f"not named by `{index_path}`; not counted", "unreferenced")
        return self._counted(one, named)

    def _take_served(self, one: WeightSet, index_path: str, metadata: Json, headers: Mapping[str, Json]) -> WeightSet:
        """What the Hub serves of all shards at once. It leaves out the index's map, which repeats the names in the headers.

        Shards that look like it by name and are not served are for the index itself to judge, so then it is read (see ``_take_sharded``).
        """
        self._contents.indexes.append(
            WeightIndex(path=index_path, total_size_bytes=declared_total(metadata), weight_map={})
        )
        for path, header in headers.items():
            if path not in self._sizes:
                self._problem(path, f"named by `{index_path}` but not in the repository", "missing")
                continue
            weights = self._or_problem(path, partial(self._served, path, header))
            if weights is not None:
                self._contents.weights.append(weights)
        return self._counted(one, headers)

    def _counted(self, one: WeightSet, named: Iterable[str]) -> WeightSet:
        """The set as its index has it."""
        files = tuple(sorted(path for path in named if path in self._sizes))
        missing = tuple(sorted(path for path in named if path not in self._sizes))
        return replace(one, files=files, size_bytes=size_of(files, self._sizes), missing=missing)

    def _served(self, path: str, header: Json) -> WeightFile:
        if not isinstance(header, dict):
            raise MalformedFileError(path, "the header is not a JSON object")
        return read_served_header(header, path, size_bytes=self._sizes[path])

    def _or_problem(self, path: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except MalformedFileError as error:
            reason = error.reason if error.offset is None else f"at byte {error.offset}: {error.reason}"
            self._problem(path, reason, "truncated" if error.is_cut_off else "unreadable")
        except NotFoundError:
            self._problem(path, "in the listing, but the file itself is not there", "missing")
        return None

    def _problem(self, path: str, reason: str, kind: ProblemKind) -> None:
        self._contents.problems.append(ReadProblem(path=path, reason=reason, kind=kind))
