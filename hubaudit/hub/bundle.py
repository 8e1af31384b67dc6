"""Bundles: one small JSON(.gz) file with all that an audit read, so that it can be replayed offline, shared, and cached by commit."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast, get_args

from hubaudit._version import __version__
from hubaudit.errors import MalformedFileError, NotFoundError
from hubaudit.formats.documents import is_repo_path, parse_object
from hubaudit.hub.problems import told
from hubaudit.types import (
    ProblemKind,
    ReadProblem,
    RepoFile,
    RepoSnapshot,
    Sourced,
    TensorInfo,
    Terms,
    TokenizerFacts,
    WeightFile,
    WeightIndex,
    WeightSet,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from hubaudit.types import Source

BUNDLE_VERSION = 2
#: Version 1 has a row of name, dtype, shape and bytes for each tensor; 92,000 of them take ten times as long to read.
_READABLE_VERSIONS = (1, BUNDLE_VERSION)
MAX_BUNDLE_BYTES = 512_000_000
_MAX_NAME_CHARACTERS = 1_000
_MAX_SENTENCE_CHARACTERS = 10_000


def write_bundle(snapshot: RepoSnapshot, path: Path) -> None:
    """Write ``snapshot`` to ``path``, gzipped where the name ends in ``.gz``; the file appears whole or not at all."""
    pieces = _pieces(_to_json(snapshot))
    draft = path.with_name(f".{token_hex(8)}.part")
    try:
        with draft.open("wb") as file:
            file.writelines(_gzipped(pieces) if path.name.endswith(".gz") else pieces)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _pieces(bundle: dict[str, Any]) -> Iterator[bytes]:
    """The bundle as JSON, a weight file or an index at a time: the text of a million tensors would take as much memory as they do."""
    before = b"{"
    for key, value in bundle.items():
        yield before + _dumped(key) + b":"
        if isinstance(value, list):
            yield b"["
            for at, item in enumerate(value):
                yield b"," + _dumped(item) if at else _dumped(item)
            yield b"]"
        else:
            yield _dumped(value)
        before = b","
    yield b"}"


def _dumped(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Without a time, so that equal bundles are equal files."""
    packer = zlib.compressobj(6, wbits=31)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def read_bundle(path: Path, *, source: Source = "bundle") -> RepoSnapshot:
    """The snapshot that ``path`` holds.

    Raises:
        NotFoundError: there is no such file.
        MalformedFileError: it is no bundle, or not one of a version this program knows.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BUNDLE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotFoundError(f"cannot read the bundle `{path}`: {reason}", hint="check the path") from None
    if len(content) > MAX_BUNDLE_BYTES:
        raise MalformedFileError(str(path), "larger than a bundle may be")
    if content[:2] == b"\x1f\x8b":
        content = _gunzip(content, path)
    bundle = parse_object(content, str(path))
    version = bundle.get("hubaudit_bundle")
    if type(version) is not int or version not in _READABLE_VERSIONS:
        what = "is no hubaudit bundle" if version is None else f"is a bundle of version {version!a}"
        raise MalformedFileError(
            str(path),
            what,
            hint=f"this program reads versions {_READABLE_VERSIONS[0]} to {BUNDLE_VERSION}; `hubaudit bundle REPO -o FILE` writes one",
        )
    try:
        return _from_json(bundle, source)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedFileError(str(path), f"not what a bundle holds: {type(error).__name__} {error}") from None


def _gunzip(content: bytes, path: Path) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(content, MAX_BUNDLE_BYTES)
    except zlib.error as error:
        raise MalformedFileError(str(path), f"broken gzip: {error}") from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise MalformedFileError(str(path), "cut off, or larger than a bundle may be")
    return text


def _to_json(snapshot: RepoSnapshot) -> dict[str, Any]:
    return {
        "hubaudit_bundle": BUNDLE_VERSION,
        "tool": f"hubaudit {__version__}",
        "repo_id": snapshot.repo_id,
        "revision": snapshot.revision,
        "commit": snapshot.commit,
        "library_name": snapshot.library_name,
        "files": [[file.path, file.size_bytes] for file in snapshot.files],
        "configs": dict(snapshot.configs),
        "weights": [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "format": file.format,
                "metadata": dict(file.metadata),
                "tensors": _columns(file.tensors),
            }
            for file in snapshot.weights
        ],
        "indexes": [
            {"path": index.path, "total_size": index.total_size_bytes, "weight_map": dict(index.weight_map)}
            for index in snapshot.indexes
        ],
        "card": snapshot.card,
        "hub_parameters": None if snapshot.hub_parameters is None else dict(snapshot.hub_parameters),
        "problems": [
            {"path": problem.path, "reason": problem.reason, "kind": problem.kind} for problem in snapshot.problems
        ],
        "chosen": [_fields(one) for one in snapshot.chosen],
        "others": [_fields(one) for one in snapshot.others],
        "base": None if snapshot.base is None else _to_json(replace(snapshot.base, base=None)),
        "base_reason": snapshot.base_reason,
        "base_error": snapshot.base_error,
        "terms": None if snapshot.terms is None else _fields(snapshot.terms),
        "tokenizer": None
        if snapshot.tokenizer is None
        else {name: _fields(value) for name, value in _fields(snapshot.tokenizer).items()},
    }


def _columns(tensors: Sequence[TensorInfo]) -> dict[str, Any]:
    """Names, and for each the place of its dtype, shape and bytes among the few that the file has."""
    kinds: dict[tuple[object, ...], int] = {}
    kind_of = [kinds.setdefault(tensor[1:], len(kinds)) for tensor in tensors]
    return {"kinds": list(kinds), "names": [tensor.name for tensor in tensors], "kind_of": kind_of}


def _fields(one: WeightSet | Terms | TokenizerFacts | Sourced[int]) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def _from_json(bundle: dict[str, Any], source: Source) -> RepoSnapshot:
    return RepoSnapshot(
        repo_id=_name(bundle["repo_id"]),
        revision=_name_or_none(bundle["revision"]),
        commit=_name_or_none(bundle["commit"]),
        source=source,
        files=tuple(RepoFile(path=_path(path), size_bytes=_size_or_none(size)) for path, size in bundle["files"]),
        configs={_path(name): _object(config) for name, config in _object(bundle["configs"]).items()},
        weights=tuple(_weight_file(file) for file in bundle["weights"]),
        indexes=tuple(
            WeightIndex(
                path=_path(index["path"]),
                total_size_bytes=_size_or_none(index["total_size"]),
                weight_map={_text(tensor): _path(shard) for tensor, shard in _object(index["weight_map"]).items()},
            )
            for index in bundle["indexes"]
        ),
        card=_text_or_none(bundle["card"]),
        library_name=_name_or_none(bundle["library_name"]),
        hub_parameters=None
        if bundle["hub_parameters"] is None
        else {_name(dtype): _size(count) for dtype, count in _object(bundle["hub_parameters"]).items()},
        problems=told([_problem(row) for row in bundle["problems"]]),
        chosen=tuple(_weight_set(row) for row in bundle.get("chosen", ())),
        others=tuple(_weight_set(row) for row in bundle.get("others", ())),
        base=None if bundle.get("base") is None else _from_json({**_object(bundle["base"]), "base": None}, source),
        base_reason=_sentence_or_none(bundle.get("base_reason")),
        base_error=_sentence_or_none(bundle.get("base_error")),
        terms=None if bundle.get("terms") is None else _terms(_object(bundle["terms"])),
        tokenizer=None if bundle.get("tokenizer") is None else _tokenizer(_object(bundle["tokenizer"])),
    )


def _problem(row: dict[str, Any]) -> ReadProblem:
    kind = row.get("kind", "unreadable")
    if kind not in get_args(ProblemKind):
        raise ValueError(f"no kind of problem: {kind!a}")
    return ReadProblem(path=_sentence(row["path"]), reason=_sentence(row["reason"]), kind=kind)


def _terms(row: dict[str, Any]) -> Terms:
    gated = row["gated"]
    return Terms(
        licence=_sentence_or_none(row["licence"]),
        licence_link=_sentence_or_none(row["licence_link"]),
        gated=None if gated is None else gated is True,
        gate_text=row["gate_text"] is True,
    )


def _tokenizer(row: dict[str, Any]) -> TokenizerFacts:
    tokens, most = _object(row["tokens"]), _object(row["max_tokens"])
    return TokenizerFacts(
        tokens=Sourced(value=_size_or_none(tokens["value"]), where=_sentence(tokens["where"])),
        max_tokens=Sourced(value=_size_or_none(most["value"]), where=_sentence(most["where"])),
    )


def _weight_set(row: dict[str, Any]) -> WeightSet:
    return WeightSet(
        format=_name(row["format"]),
        files=tuple(_path(path) for path in row["files"]),
        size_bytes=_size_or_none(row["size_bytes"]),
        variant=_sentence_or_none(row["variant"]),
        index=None if row["index"] is None else _path(row["index"]),
        missing=tuple(_path(path) for path in row["missing"]),
        note=_sentence_or_none(row["note"]),
    )


def _weight_file(file: dict[str, Any]) -> WeightFile:
    return WeightFile(
        path=_path(file["path"]),
        size_bytes=_size_or_none(file["size_bytes"]),
        format=_name(file["format"]),
        tensors=tuple(_tensors(file["tensors"])),
        metadata=_object(file["metadata"]),
    )


def _tensors(held: Any) -> Iterator[TensorInfo]:
    """The tensors of one file, from the columns of version 2 or the rows of version 1, each checked."""
    if isinstance(held, list):
        # The layers of a model repeat a few shapes, so one tuple serves for all.
        shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        for name, *kind in held:
            dtype, shape, stored_bytes = _kind(*kind)
            yield TensorInfo(_text(name), dtype, shapes.setdefault(shape, shape), stored_bytes)
        return
    columns = _object(held)
    kinds = [_kind(*kind) for kind in columns["kinds"]]
    for name, at in zip(columns["names"], columns["kind_of"], strict=True):
        if type(at) is not int or not 0 <= at < len(kinds):
            raise ValueError(f"no kind {ascii(at)[:120]}")
        dtype, shape, stored_bytes = kinds[at]
        yield TensorInfo(_text(name), dtype, shape, stored_bytes)


def _kind(dtype: object, dimensions: list[object], stored_bytes: object) -> tuple[str, tuple[int, ...], int]:
    return _name(dtype), tuple([_size(dimension) for dimension in dimensions]), _size(stored_bytes)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _name(value: object) -> str:
    name = _text(value)
    if len(name) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"a name of {len(name):,} characters")
    return name


def _sentence(value: object) -> str:
    sentence = _text(value)
    if len(sentence) > _MAX_SENTENCE_CHARACTERS:
        raise ValueError(f"a sentence of {len(sentence):,} characters")
    return sentence


def _sentence_or_none(value: object) -> str | None:
    return None if value is None else _sentence(value)


def _name_or_none(value: object) -> str | None:
    return None if value is None else _name(value)


def _path(value: object) -> str:
    path = _text(value)
    if not is_repo_path(path):
        raise ValueError(f"a path outside the repository: {path[:120]!a}")
    return path


def _size(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"a size or count expected, not {ascii(value)[:120]}")
    return value


def _size_or_none(value: object) -> int | None:
    return None if value is None else _size(value)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"an object expected, not {type(value).__name__}")
    return cast("dict[str, Any]", value)
