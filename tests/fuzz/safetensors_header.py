"""safetensors: whole files, headers as JSON of any kind, and headers as a mirror of the Hub may serve them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from byte_sources import BytesSource
from fuzz.choices import Choices, changed
from fuzz.registry import target
from weight_bytes import safetensors

from hubaudit.errors import MalformedFileError
from hubaudit.formats.safetensors import check_header, read_safetensors, read_served_header

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS = (
    "dtype",
    "shape",
    "data_offsets",
    "__metadata__",
    "a",
    "b",
    "model.embed_tokens.weight",
    "\x1b[2J",
    "\ud800",
    "",
)
_WORDS = (
    b'"dtype"',
    b'"shape"',
    b'"data_offsets"',
    b'"__metadata__"',
    b'"F32"',
    b'"BF16"',
    b'"F4"',
    b'"I64"',
    b"18446744073709551615",
)
_SMALL: dict[str, tuple[str, tuple[int, ...]]] = {"a": ("F32", (2, 3)), "b": ("BF16", (4,)), "c": ("I64", ())}
_HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "c": {"dtype": "F4", "shape": [2, 2], "data_offsets": [32, 34]},
}


def _files() -> Iterator[bytes]:
    yield safetensors({})
    yield safetensors(_SMALL)
    yield safetensors(_SMALL, {"format": "pt"})


@target("safetensors-file", allowed=(MalformedFileError,), seeds=_files, dictionary=_WORDS)
def whole_file(data: bytes) -> None:
    """A file as it lies on a disk."""
    source = BytesSource(data, path="model.safetensors")
    read = read_safetensors(source)
    assert sum(tensor.stored_bytes for tensor in read.tensors) <= len(data)
    assert source.read_bytes <= len(data) + 32 * 1024


def _texts() -> Iterator[bytes]:
    yield json.dumps(_HEADER).encode()
    yield b"{}"


@target("safetensors-header-text", allowed=(MalformedFileError,), seeds=_texts, dictionary=_WORDS)
def header_text(data: bytes) -> None:
    """A header's text, with the length before it right and as much data behind it as its offsets ask for, where they can be told."""
    wanted = 0
    try:
        rows = json.loads(data)
        ends = [row["data_offsets"][1] for key, row in rows.items() if key != "__metadata__"]
        wanted = max(ends, default=0)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    body = bytes(wanted) if type(wanted) is int and 0 <= wanted < 4096 else b""
    content = len(data).to_bytes(8, "little") + data + body
    read_safetensors(BytesSource(content, path="model.safetensors"))


def _choices() -> Iterator[bytes]:
    yield b""
    yield bytes(range(64))


@target("safetensors-served-header", allowed=(MalformedFileError,), seeds=_choices)
def served_header(data: bytes) -> None:
    """A header that was decoded by somebody else."""
    choices = Choices(data)
    header = changed(choices, _HEADER, _KEYS)
    if choices.below(2):
        read_served_header(header, "model.safetensors", size_bytes=choices.pick((None, 0, 34, 300, 10**6, 2**63)))
    else:
        check_header(header, "model.safetensors", data_bytes=choices.pick((None, 0, 34, 2**63)))
