"""torch's checkpoints: the zip directory, the pickle's opcodes, and both together."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from typing import TYPE_CHECKING

from byte_sources import BytesSource
from fuzz.registry import target
from weight_bytes import LEGACY_TORCH, torch

from hubaudit.errors import MalformedFileError
from hubaudit.formats.pickle_machine import BrokenPickleError
from hubaudit.formats.pickle_ops import read_pickle
from hubaudit.formats.torch_zip import read_torch_zip
from hubaudit.formats.zip_directory import NotZipError, ZipDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

_TENSORS = {"model.a.weight": ("F32", (2, 3)), "model.b.weight": ("BF16", (4,)), "ids": ("I64", (3,))}
_OPCODES = tuple(opcode.code.encode("latin-1") for opcode in pickletools.opcodes)
_NAMES = (
    b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n", b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n",
    b"cposix\nsystem\n", b"X\x07\0\0\0storage", b"X\x03\0\0\0cpu", b"(tQ", b"\x80\x02", b"\x8a\x01\x06",
)  # fmt: skip
_ZIP = (
    b"PK\x01\x02",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"PK\x06\x07",
    b"\xff\xff\xff\xff",
    b"archive/data.pkl",
    b"\x08\0",
)


def _archives() -> Iterator[bytes]:
    yield torch(_TENSORS)
    yield torch(_TENSORS, under="state_dict", tied={"head": "ids"})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("a/b", b"x" * 1000)
        writer.comment = b"comment"
    yield file.getvalue()


@target("zip-directory", allowed=(MalformedFileError, NotZipError), seeds=_archives, dictionary=_ZIP)
def directory(data: bytes) -> None:
    """The directory, and each small entry's contents."""
    archive = ZipDirectory(BytesSource(data, path="pytorch_model.bin"))
    for entry in list(archive.entries.values())[:20]:
        contents, _ = archive.read(entry, 10_000)
        assert len(contents) <= 10_000


def _pickles() -> Iterator[bytes]:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.dumps({"a": [1, 2.5, "x", b"y", None, True, (1, 2, 3)], "b": {1, 2}, "c": 2**70}, protocol)


@target("pickle-opcodes", allowed=(BrokenPickleError,), seeds=_pickles, dictionary=(*_OPCODES, *_NAMES))
def opcodes(data: bytes) -> None:
    """One stream of opcodes."""
    read = read_pickle(data)
    assert read.end <= len(data)
    assert all(name.isprintable() for name in read.names)


def _checkpoints() -> Iterator[bytes]:
    for archive in _archives():
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            yield from (opened.read(name) for name in opened.namelist() if name.endswith(".pkl"))


@target("torch-pickle", allowed=(MalformedFileError,), seeds=_checkpoints, dictionary=(*_OPCODES, *_NAMES))
def checkpoint(data: bytes) -> None:
    """The bytes as the pickle of a checkpoint whose archive is sound."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as writer:
        writer.writestr("archive/data.pkl", data)
        for key, size in (("0", 24), ("1", 8), ("2", 24)):
            writer.writestr(f"archive/data/{key}", bytes(size))
    read_torch_zip(BytesSource(file.getvalue(), path="pytorch_model.bin"))


def _files() -> Iterator[bytes]:
    yield from _archives()
    yield LEGACY_TORCH


@target("torch-file", allowed=(MalformedFileError,), seeds=_files, dictionary=(*_ZIP, *_NAMES))
def file(data: bytes) -> None:
    """A file as it lies on a disk."""
    read_torch_zip(BytesSource(data, path="pytorch_model.bin"))
