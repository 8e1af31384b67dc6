"""GGUF headers: what the file says of itself, and its tensors with the bytes that ggml's blocks make of them.

The format: github.com/ggml-org/ggml, docs/gguf.md, and the checks of its reference reader (src/gguf.cpp, ``gguf_init_from_file``).
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.formats.gguf_values import HeaderReader, read_metadata
from hubaudit.formats.quoting import shown
from hubaudit.types import TensorInfo, WeightFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.formats.source import ByteSource
    from hubaudit.types import Json

MAX_TENSORS = 262_144
MAX_NAME_BYTES = 1_024  # ggml's own limit (GGML_MAX_NAME) is 64, which builds for image models raise
MAX_DIMENSIONS = 4  # ggml.h: GGML_MAX_DIMS
DEFAULT_ALIGNMENT = 32  # docs/gguf.md: general.alignment


def read_gguf(source: ByteSource) -> WeightFile:
    """Read and check one file's header, reading on only as far as the header goes.

    ``dtype`` is ggml's name of the tensor's type (``"Q4_K"``), ``shape`` is row-major (ggml's dimensions reversed, as numpy shows
    them), ``stored_bytes`` what the type's blocks take, without padding. ``metadata`` holds the file's keys as
    ``gguf_values.read_metadata`` keeps them, and three that cannot be the file's own: ``GGUF.version``, ``GGUF.byte_order``
    (``"little"`` or ``"big"``) and ``GGUF.data_offset`` (bytes before the first tensor).

    Raises:
        MalformedFileError: the file breaks one of the format's rules, is of version 1, or has a tensor of an unknown ggml type.
    """
    reader = HeaderReader(source)
    version = _version(reader)
    tensor_count, key_count = reader.number("Q"), reader.number("Q")
    if tensor_count > MAX_TENSORS:
        raise reader.broken(f"{tensor_count} tensors, more than {MAX_TENSORS}", offset=8)
    metadata, types = read_metadata(reader, key_count)
    alignment = _alignment(reader, metadata, types)
    tensors, data_bytes = _tensors(reader, tensor_count, alignment)
    data_offset = _padded(reader.end(), alignment)
    if data_bytes and source.size_bytes is not None and data_offset + data_bytes > source.size_bytes:
        needed = f"tensors need {data_offset + data_bytes} bytes, the file has {source.size_bytes}"
        raise reader.broken(f"the file is cut off: {needed}", offset=source.size_bytes, is_cut_off=True)
    for key, value in (
        ("GGUF.version", version),
        ("GGUF.byte_order", "little" if reader.order == "<" else "big"),
        ("GGUF.data_offset", data_offset),
    ):
        if key in metadata:
            raise reader.broken(f"the metadata key {shown(key)} is reserved")
        metadata[key] = value
    return WeightFile(path=source.path, size_bytes=source.size_bytes, format="gguf", tensors=tensors, metadata=metadata)


def _version(reader: HeaderReader) -> int:
    """Check the magic, find the byte order from the version (small in one order, large in the other), and return the version."""
    magic = reader.take(4)
    if magic != b"GGUF":
        raise reader.broken(f"not a GGUF file: it starts with {magic!a}", offset=0)
    raw = reader.take(4)
    reader.order = ">" if raw[:2] == b"\0\0" and raw != b"\0\0\0\0" else "<"
    version = int.from_bytes(raw, "little" if reader.order == "<" else "big")
    if version == 1:
        raise reader.broken("GGUF version 1, which was replaced in August 2023: convert the file again", offset=4)
    if version not in (2, 3):
        raise reader.broken(f"GGUF version {version}; this tool reads 2 and 3", offset=4)
    return version


def _alignment(reader: HeaderReader, metadata: Mapping[str, Json], types: Mapping[str, str]) -> int:
    if "general.alignment" not in metadata:
        return DEFAULT_ALIGNMENT
    value, type_name = metadata["general.alignment"], types["general.alignment"]
    if not isinstance(value, int) or type_name != "uint32" or value == 0 or value & (value - 1):
        raise reader.broken(f"general.alignment is {type_name} {shown(str(value))}, not a power of two as uint32")
    return value


def _tensors(reader: HeaderReader, count: int, alignment: int) -> tuple[tuple[TensorInfo, ...], int]:
    """The tensor table, and the bytes from the data's start to the last tensor's end."""
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    filled = 0
    for _ in range(count):
        start = reader.offset
        tensor, offset = _tensor(reader)
        if tensor.name in names:
            raise reader.broken(f"the tensor name {shown(tensor.name)} appears twice", offset=start)
        if offset % alignment:
            raise reader.broken(
                f"tensor {shown(tensor.name)} lies at {offset}, no multiple of {alignment}", offset=start
            )
        if offset < filled:
            raise reader.broken(f"tensor {shown(tensor.name)} lies at {offset}, inside the one before it", offset=start)
        names.add(tensor.name)
        tensors.append(tensor)
        filled = offset + tensor.stored_bytes
    return tuple(tensors), filled


def _tensor(reader: HeaderReader) -> tuple[TensorInfo, int]:
    """One row of the table: the tensor, and where it starts in the data."""
    start = reader.offset
    name = reader.text(MAX_NAME_BYTES, "a tensor name")
    dimensions = reader.number("I")
    if dimensions > MAX_DIMENSIONS:
        raise reader.broken(
            f"tensor {shown(name)} has {dimensions} dimensions, more than {MAX_DIMENSIONS}", offset=start
        )
    sizes = tuple(reader.number("Q") for _ in range(dimensions))
    type_id, offset = reader.number("I"), reader.number("Q")
    if type_id not in _types():
        raise reader.broken(
            f"tensor {shown(name)} has the ggml type {type_id}, which this tool does not know", offset=start
        )
    dtype, block_elements, block_bytes = _types()[type_id]
    elements = prod(sizes)
    if max((elements, *sizes)) >= 2**63:
        raise reader.broken(f"tensor {shown(name)} has the impossible dimensions {list(sizes)}", offset=start)
    if (sizes and sizes[0] % block_elements) or (not sizes and block_elements > 1):
        raise reader.broken(
            f"tensor {shown(name)} of {dtype} has rows that are no multiple of {block_elements}: {list(sizes)}",
            offset=start,
        )
    stored_bytes = elements // block_elements * block_bytes
    return TensorInfo(name, dtype, tuple(reversed(sizes)), stored_bytes), offset


@cache
def _types() -> dict[int, tuple[str, int, int]]:
    """Name, elements per block and bytes per block of every ggml type, by its id."""
    return {
        row["id"]: (row["name"], row["block_elements"], row["block_bytes"]) for row in table("ggml_types.json")["types"]
    }


def _padded(size_bytes: int, alignment: int) -> int:
    return (size_bytes + alignment - 1) // alignment * alignment
