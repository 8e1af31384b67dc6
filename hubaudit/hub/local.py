"""A folder or a weight file → RepoSnapshot."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hubaudit.errors import CannotAuditError, MalformedFileError, NotFoundError
from hubaudit.formats.documents import is_repo_path
from hubaudit.formats.headers import read_header
from hubaudit.formats.weight_names import weight_name
from hubaudit.formats.weight_sets import find_sets
from hubaudit.hub.assemble import read_contents
from hubaudit.hub.beside import card_in, tokenizer_in
from hubaudit.hub.problems import told
from hubaudit.types import ReadProblem, RepoFile, RepoSnapshot, Source, WeightSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.types import Json, ProblemKind

_MAX_FILES = 100_000
_MAX_DEPTH = 8


def read_folder(
    name: str,
    *,
    source: Source = "local",
    repo_id: str | None = None,
    commit: str | None = None,
    file: str | None = None,
) -> RepoSnapshot:
    """The repository that lies in a folder, read as it would be on the Hub; ``file`` chooses its weights.

    Raises:
        CannotAuditError: the folder cannot be listed, or ``file`` is no weight file that can be read.
        NotFoundError: ``file`` is not there.
    """
    reader = _FolderReader(Path(name))
    contents = read_contents(reader, file=file)
    card, terms = card_in(reader, is_whole=source == "local")
    return RepoSnapshot(
        repo_id=repo_id or name,
        revision=None,
        commit=commit,
        source=source,
        files=reader.files,
        configs=contents.configs,
        weights=tuple(contents.weights),
        indexes=tuple(contents.indexes),
        problems=tuple(contents.problems),
        chosen=tuple(contents.chosen),
        others=tuple(contents.others),
        card=card,
        terms=terms,
        tokenizer=tokenizer_in(reader),
    )


def read_file(name: str) -> RepoSnapshot:
    """One weight file on its own, with the other shards of its set that lie beside it: its tensors, and no config.

    Raises:
        MalformedFileError: it is no weight file that can be read, or breaks its format's rules.
    """
    file = Path(name)
    beside = _shards_beside(file)
    weights = [read_header(LocalFile(file, file.name))]
    problems = []
    for path in beside.files:
        if path != file.name:
            try:
                weights.append(read_header(LocalFile(file.with_name(path), path)))
            except (MalformedFileError, NotFoundError) as error:
                is_cut_off = isinstance(error, MalformedFileError) and error.is_cut_off
                kind: ProblemKind = "truncated" if is_cut_off else "unreadable"
                problems.append(ReadProblem(path=path, reason=error.message, kind=kind))
    problems += [ReadProblem(path=path, reason="not beside the others", kind="missing") for path in beside.missing]
    weights.sort(key=lambda one: one.path)
    files = tuple(RepoFile(path=one.path, size_bytes=one.size_bytes) for one in weights)
    return RepoSnapshot(
        repo_id=name,
        revision=None,
        commit=None,
        source="local",
        files=files,
        weights=tuple(weights),
        problems=told(problems),
        chosen=(replace(beside, format=weights[0].format, index=None),),
    )


def _shards_beside(file: Path) -> WeightSet:
    """The set that a file's name says it is one of. Without shards beside it, it stands alone."""
    alone = WeightSet(format="", files=(file.name,), size_bytes=file.stat().st_size)
    named = weight_name(file.name)
    if named is None or not named.is_shard:
        return alone
    with suppress(OSError):
        listing = [
            RepoFile(path=path.name, size_bytes=path.stat().st_size) for path in file.parent.iterdir() if path.is_file()
        ]
        if len(listing) <= _MAX_FILES:
            return next((one.with_missing() for one in find_sets(listing) if file.name in one.weights.files), alone)
    return alone


class LocalFile:
    """A ``ByteSource`` over a regular file."""

    def __init__(self, file: Path, path: str) -> None:
        self.path = path
        self._file = file
        try:
            status = file.stat()
        except (OSError, ValueError) as error:
            raise NotFoundError(f"cannot read `{path}`: {_why(error)}") from None
        if not stat.S_ISREG(status.st_mode):
            raise MalformedFileError(path, "not a regular file")
        self.size_bytes: int | None = status.st_size

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        try:
            with self._file.open("rb") as opened:
                opened.seek(offset)
                return opened.read(length)
        except OSError as error:
            raise MalformedFileError(self.path, f"cannot be read: {_why(error)}") from None


class _FolderReader:
    """The files of one folder. Links are followed to files, as huggingface_hub's cache is made of them, but not to folders."""

    parallel = 4

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            files = list(islice(_listing(folder, "", 0), _MAX_FILES + 1))
        except OSError as error:
            raise CannotAuditError(
                f"cannot list `{error.filename or folder}`: {_why(error)}", hint="check who may read it"
            ) from None
        if len(files) > _MAX_FILES:
            raise CannotAuditError(f"`{folder}` holds more than {_MAX_FILES} files", hint="name the model's own folder")
        self.files = tuple(sorted(files, key=lambda file: file.path))

    def read(self, path: str, max_bytes: int) -> bytes:
        file = self.open(path)
        if file.size_bytes is not None and file.size_bytes > max_bytes:
            raise MalformedFileError(path, f"larger than {max_bytes} bytes")
        return file.read(0, max_bytes)

    def open(self, path: str) -> LocalFile:
        return LocalFile(self._folder / path, path)

    def headers_at_once(self, index: str) -> tuple[Json, Mapping[str, Json]] | None:
        return None


def _listing(folder: Path, prefix: str, depth: int) -> Iterator[RepoFile]:
    """The regular files in ``folder`` and below, hidden ones and those with impossible names left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if not is_repo_path(path) or entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH:
                yield from _listing(Path(entry.path), f"{path}/", depth + 1)
            elif entry.is_file():
                yield RepoFile(path=path, size_bytes=entry.stat().st_size)


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
