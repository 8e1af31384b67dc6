"""What the local Hub serves: repositories, their commits and refs, and weight files that have a size but no data."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hubaudit.types import RepoSnapshot

LFS_SUFFIXES = ("safetensors", "bin", "gguf", "pt", "pth", "ckpt", "onnx", "h5", "msgpack", "zip", "tar", "parquet")
LFS_PATTERNS = tuple(f"*.{suffix}" for suffix in LFS_SUFFIXES)
"""The usual ``.gitattributes`` of a model repository."""

LFS_FROM_BYTES = 10 * 1024 * 1024
"""The Hub refuses larger files outside LFS."""

INFO_CONFIG_KEYS = (
    "architectures",
    "model_type",
    "quantization_config",
    "num_experts",
    "num_local_experts",
    "auto_map",
)
"""The few keys of config.json that model info repeats."""

# As the safetensors format names its dtypes (safetensors 0.7, `Dtype::bitsize`).
_DTYPES_BY_BITS = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "C64 F64 I64 U64",
}
SAFETENSORS_DTYPE_BITS = {dtype: bits for bits, dtypes in _DTYPES_BY_BITS.items() for dtype in dtypes.split()}

MAX_HEADER_PADDING_BYTES = 1_000_000

_ZEROS = memoryview(bytes(64 * 1024))


@dataclass(frozen=True, slots=True)
class SparseFile:
    """A file of ``size`` bytes of which only the first ones are kept; the rest reads as zeros."""

    prefix: bytes
    size: int

    def __len__(self) -> int:
        return self.size

    def pieces(self, start: int, stop: int) -> Iterator[bytes | memoryview]:
        """The bytes ``start`` to ``stop`` (exclusive), a piece at a time, so that a 700 GB file needs no memory."""
        end_of_prefix = min(stop, len(self.prefix), self.size)
        if start < end_of_prefix:
            yield memoryview(self.prefix)[start:end_of_prefix]
            start = end_of_prefix
        while start < min(stop, self.size):
            piece = _ZEROS[: min(len(_ZEROS), stop - start)]
            yield piece
            start += len(piece)


Content = bytes | SparseFile
Files = Mapping[str, Content]


def pieces(content: Content, start: int, stop: int) -> Iterator[bytes | memoryview]:
    """Bytes ``start`` to ``stop`` of either kind of file, lazily."""
    if isinstance(content, SparseFile):
        yield from content.pieces(start, stop)
        return
    view = memoryview(content)
    for at in range(start, min(stop, len(content)), len(_ZEROS)):
        yield view[at : min(at + len(_ZEROS), stop)]


def safetensors_prefix(
    tensors: Iterable[tuple[str, str, Iterable[int]]],
    metadata: Mapping[str, str] | None = None,
    *,
    size: int | None = None,
) -> SparseFile:
    """A well-formed safetensors file of ``(name, dtype, shape)`` tensors laid out back to back, without its data.

    The format: 8 bytes of little-endian header length, a JSON header padded with spaces (to a multiple of 8 here), then
    the data. Where the whole file's ``size`` is given and leaves room, the padding makes the file exactly that long.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata is not None else {}
    end = 0
    for name, dtype, shape in tensors:
        dims = list(shape)
        start, end = end, end + (prod(dims) * SAFETENSORS_DTYPE_BITS[dtype] + 7) // 8
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    room = -1 if size is None else size - 8 - end - len(text)
    text += b" " * (room if 0 <= room < MAX_HEADER_PADDING_BYTES else -len(text) % 8)
    return SparseFile(len(text).to_bytes(8, "little") + text, 8 + len(text) + end)


def header_of(content: Content) -> bytes:
    """The JSON header of a safetensors file as it is written there; ``ValueError`` where there is none."""
    start = content.prefix if isinstance(content, SparseFile) else content
    length = int.from_bytes(start[:8], "little")
    text = start[8 : 8 + length]
    if len(start) < 8 or len(text) != length:
        raise ValueError("no safetensors header")
    json.loads(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One file of one commit, as git and the CDN know it."""

    path: str
    content: Content
    lfs: bool
    git_oid: str
    sha256: str
    xet_hash: str

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    @property
    def etag(self) -> str:
        """What the Hub calls the file's ETag: the sha256 of an LFS file, the git oid of any other."""
        return self.sha256 if self.lfs else self.git_oid

    @property
    def pointer(self) -> bytes:
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size_bytes}\n"
        return text.encode()


def _git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def make_blob(path: str, content: Content, *, lfs: bool) -> Blob:
    """The file with its real git oid and sha256; a sparse file's are stand-ins, for its data cannot be hashed."""
    if isinstance(content, SparseFile):
        sha256 = hashlib.sha256(b"sparse %d\0" % content.size + content.prefix).hexdigest()
    else:
        sha256 = hashlib.sha256(content).hexdigest()
    xet_hash = hashlib.sha256(b"xet" + sha256.encode()).hexdigest()
    blob = Blob(path=path, content=content, lfs=lfs, git_oid="", sha256=sha256, xet_hash=xet_hash)
    tracked = blob.pointer if lfs or isinstance(content, SparseFile) else content
    return Blob(path=path, content=content, lfs=lfs, git_oid=_git_oid(tracked), sha256=sha256, xet_hash=xet_hash)


class LocalRepo:
    """A model repository: commits, refs, and what the Hub says of it.

    ``lfs`` are paths, suffixes or ``.gitattributes``-like patterns; by default ``LFS_PATTERNS`` and all above 10 MB.
    ``branches``, ``tags`` and ``pull_requests`` (by number) give another set of files, which becomes a commit, or the
    name or hash of a commit that is already there. ``renamed_from`` are ids that redirect here. ``allowed_tokens`` may
    read a gated or private repository. ``safetensors`` are the Hub's parameter totals by dtype; ``info`` overrides or
    adds keys of model info (``None`` removes one).
    """

    def __init__(
        self,
        repo_id: str,
        files: Mapping[str, Content | str],
        *,
        lfs: Collection[str] | None = None,
        commit: str | None = None,
        branches: Mapping[str, Files | str] | None = None,
        tags: Mapping[str, Files | str] | None = None,
        pull_requests: Mapping[int, Files | str] | None = None,
        gated: str | bool = False,
        private: bool = False,
        disabled: bool = False,
        allowed_tokens: Collection[str] = (),
        renamed_from: Collection[str] = (),
        library_name: str | None = None,
        safetensors: Mapping[str, int] | None = None,
        tags_shown: Collection[str] = (),
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.repo_id = repo_id
        self.lfs = lfs
        self.gated = gated
        self.private = private
        self.disabled = disabled
        self.allowed_tokens = frozenset(allowed_tokens)
        self.renamed_from = tuple(renamed_from)
        self.library_name = library_name
        self.safetensors = safetensors
        self.tags_shown = tuple(tags_shown)
        self.info = dict(info or {})
        self.internal_id = hashlib.sha256(repo_id.encode()).hexdigest()[:24]
        self.commits: dict[str, dict[str, Blob]] = {}
        self.refs: dict[str, str] = {}
        self.commit(files, sha=commit)
        proposed = {f"refs/pr/{number}": target for number, target in (pull_requests or {}).items()}
        for ref, target in {**(branches or {}), **(tags or {}), **proposed}.items():
            if isinstance(target, str):
                self.refs[ref] = self.refs.get(target, target)
            else:
                self.commit(target, ref=ref)
        self.tag_names = frozenset(tags or ())

    @property
    def sha(self) -> str:
        """The commit at the tip of ``main``."""
        return self.refs["main"]

    def commit(
        self, files: Mapping[str, Content | str] | None = None, *, ref: str = "main", sha: str | None = None
    ) -> str:
        """Move ``ref`` to a new commit of exactly ``files`` (those of ``main`` if not given); returns its hash."""
        if files is None:
            tree = dict(self.commits[self.sha])
        else:
            data = {path: content.encode() if isinstance(content, str) else content for path, content in files.items()}
            tree = {path: make_blob(path, data[path], lfs=self._is_lfs(path, data[path])) for path in sorted(data)}
        if sha is None:
            names = "".join(f"{blob.git_oid} {path}\n" for path, blob in tree.items())
            parent = self.refs.get(ref, "")
            sha = hashlib.sha1(f"{self.repo_id}\n{parent}\n{names}".encode(), usedforsecurity=False).hexdigest()
        self.commits[sha] = tree
        self.refs[ref] = sha
        return sha

    def _is_lfs(self, path: str, content: Content) -> bool:
        if self.lfs is None:
            return len(content) > LFS_FROM_BYTES or any(fnmatch.fnmatch(path, pattern) for pattern in LFS_PATTERNS)
        return any(path == pattern or fnmatch.fnmatch(path, pattern) or path.endswith(pattern) for pattern in self.lfs)

    def find_commit(self, revision: str) -> str | None:
        """The full hash for a branch, a tag, ``refs/pr/N`` or a full hash."""
        if revision.startswith("refs/heads/"):
            revision = revision.removeprefix("refs/heads/")
        found = self.refs.get(revision, revision)
        return found if found in self.commits else None

    def visible_to(self, token: str | None) -> bool:
        return not self.private or token in self.allowed_tokens

    def readable_by(self, token: str | None) -> bool:
        return self.visible_to(token) and (not self.gated or token in self.allowed_tokens)


def model_info(repo: LocalRepo, sha: str, *, blobs: bool = False) -> dict[str, Any]:
    """Everything that model info can say of a repository at one commit, by the Hub's names."""
    tree = repo.commits[sha]
    author = repo.repo_id.split("/")[0] if "/" in repo.repo_id else None
    tags = [name for name in (repo.library_name, *_shown_formats(tree), *repo.tags_shown) if name]
    values: dict[str, Any] = {
        "_id": repo.internal_id,
        "id": repo.repo_id,
        "private": repo.private,
        "library_name": repo.library_name,
        "tags": tags,
        "downloads": 0,
        "likes": 0,
        "modelId": repo.repo_id,
        "author": author,
        "sha": sha,
        "lastModified": "2026-01-01T00:00:00.000Z",
        "gated": repo.gated,
        "disabled": repo.disabled,
        "config": _shown_config(tree),
        "siblings": [_sibling(blob, blobs) for blob in tree.values()],
        "spaces": [],
        "createdAt": "2025-01-01T00:00:00.000Z",
        "usedStorage": sum(blob.size_bytes for blob in tree.values()),
    }
    if repo.safetensors is not None:
        values["safetensors"] = {"parameters": dict(repo.safetensors), "total": sum(repo.safetensors.values())}
    values.update(repo.info)
    return {key: value for key, value in values.items() if value is not None}


def _shown_formats(tree: Mapping[str, Blob]) -> list[str]:
    return [name for name in ("safetensors", "gguf", "onnx") if any(path.endswith(f".{name}") for path in tree)]


def _shown_config(tree: Mapping[str, Blob]) -> dict[str, Any] | None:
    blob = tree.get("config.json")
    if blob is None or isinstance(blob.content, SparseFile):
        return None
    try:
        config = json.loads(blob.content)
    except ValueError:
        return None
    return {key: config[key] for key in INFO_CONFIG_KEYS if key in config} if isinstance(config, dict) else None


def _sibling(blob: Blob, blobs: bool) -> dict[str, Any]:
    item: dict[str, Any] = {"rfilename": blob.path}
    if blobs:
        item |= {"blobId": blob.git_oid, "size": blob.size_bytes}
        if blob.lfs:
            item["lfs"] = {"sha256": blob.sha256, "size": blob.size_bytes, "pointerSize": len(blob.pointer)}
    return item


def tree_item(blob: Blob, *, expand: bool = False) -> dict[str, Any]:
    """A file as the tree and paths-info answers describe it."""
    item: dict[str, Any] = {"type": "file", "oid": blob.git_oid, "size": blob.size_bytes, "path": blob.path}
    if blob.lfs:
        item["lfs"] = {"oid": blob.sha256, "size": blob.size_bytes, "pointerSize": len(blob.pointer)}
        item["xetHash"] = blob.xet_hash
    if expand:
        item["lastCommit"] = {"id": "0" * 40, "title": "Upload", "date": "2026-01-01T00:00:00.000Z"}
    return item


def folder_item(path: str) -> dict[str, Any]:
    """A folder as the tree answer describes it."""
    return {"type": "directory", "oid": _git_oid(path.encode()), "size": 0, "path": path}


def repo_from_snapshot(snapshot: RepoSnapshot, **options: Any) -> LocalRepo:
    """The repository that a snapshot was read from: configs, indexes and card as files, weight files without data.

    Files that the listing only names become zeros of the listed size. ``options`` go to ``LocalRepo``.
    """
    files: dict[str, Content] = {file.path: SparseFile(b"", file.size_bytes or 0) for file in snapshot.files}
    files |= {path: json.dumps(config, indent=2).encode() for path, config in snapshot.configs.items()}
    for index in snapshot.indexes:
        metadata = {} if index.total_size_bytes is None else {"total_size": index.total_size_bytes}
        body = {"metadata": metadata, "weight_map": dict(index.weight_map) or _weight_map(snapshot, index.path)}
        files[index.path] = json.dumps(body, indent=2).encode()
    for weight in snapshot.weights:
        if weight.format == "safetensors":
            of_file = {key: str(value) for key, value in weight.metadata.items()} or None
            tensors = ((tensor.name, tensor.dtype, tensor.shape) for tensor in weight.tensors)
            files[weight.path] = safetensors_prefix(tensors, of_file, size=weight.size_bytes)
    if snapshot.card is not None:
        files["README.md"] = snapshot.card.encode()
    options.setdefault("commit", snapshot.commit)
    options.setdefault("library_name", snapshot.library_name)
    options.setdefault("safetensors", snapshot.hub_parameters)
    return LocalRepo(snapshot.repo_id, files, **options)


def _weight_map(snapshot: RepoSnapshot, index_path: str) -> dict[str, str]:
    folder = index_path.rpartition("/")[0]
    prefix = f"{folder}/" if folder else ""
    return {
        tensor.name: weight.path.removeprefix(prefix)
        for weight in snapshot.weights
        if weight.path.rpartition("/")[0] == folder
        for tensor in weight.tensors
    }
