"""The values of a GGUF header: a reader that goes forward in bounded chunks, and the key/value section it decodes.

The format: github.com/ggml-org/ggml, docs/gguf.md (``gguf_header_t``, ``gguf_metadata_value_t``), versions 2 and 3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal

from hubaudit.errors import MalformedFileError
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from hubaudit.formats.source import ByteSource
    from hubaudit.types import Json

MAX_HEADER_BYTES = 64 * 2**20  # the largest vocabularies in use (262k tokens with their merges) make about 16 MiB
FIRST_READ_BYTES = 64 * 2**10
LARGEST_READ_BYTES = 2 * 2**20
MAX_KEYS = 65_536
MAX_KEY_BYTES = 65_535  # docs/gguf.md: "up to 2^16-1 bytes long"
MAX_KEPT_NUMBERS = 4_096  # per array: per-layer lists are kept, vocabularies are not
MAX_KEPT_STRINGS = 256  # per array: languages, tags
MAX_KEPT_TEXT_BYTES = 65_536  # per string: chat templates are kept, whole tokenizer files are not
MAX_KEPT_BYTES = 16 * 2**20  # of everything kept, so that many short arrays cannot add up
MAX_ARRAY_DEPTH = 4
MAX_NESTED_ARRAYS = 65_536

_NUMBERS = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_TYPE_NAMES = {type_id: name for type_id, (name, _) in _NUMBERS.items()} | {_STRING: "string", _ARRAY: "array"}
_NUMBER_COST_BYTES = 40  # a Python number and its place in a list


class HeaderReader:
    """Reads a header from its start, in chunks that grow from ``FIRST_READ_BYTES`` to ``LARGEST_READ_BYTES``.

    Only the current chunk is held. What is skipped past the end of a chunk is not read at all.
    """

    def __init__(self, source: ByteSource) -> None:
        self.path = source.path
        self.order: Literal["<", ">"] = "<"
        self._source = source
        self._start = 0  # the file's offset of the chunk's first byte
        self._chunk = b""
        self._at = 0  # the next byte, counted from the chunk's first; past its end after a skip
        self._read_bytes = FIRST_READ_BYTES

    @property
    def offset(self) -> int:
        """Where in the file the next byte lies."""
        return self._start + self._at

    def broken(self, reason: str, *, offset: int | None = None, is_cut_off: bool = False) -> MalformedFileError:
        """The error to raise for what was found at ``offset``, by default at the next byte."""
        return MalformedFileError(
            self.path, reason, offset=self.offset if offset is None else offset, is_cut_off=is_cut_off
        )

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        self._require(length)
        self._at += length
        return self._chunk[self._at - length : self._at]

    def skip(self, length: int) -> None:
        """Pass over ``length`` bytes; that they exist is checked by the next read, and at the header's end."""
        self._at += length

    def number(self, code: str) -> int:
        """One integer of the ``struct`` format ``code``, in the file's byte order."""
        layout = struct.Struct(self.order + code)
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def text(self, limit: int, what: str) -> str:
        """A string of at most ``limit`` bytes that must be UTF-8, such as a key or a name."""
        start = self.offset
        length = self.number("Q")
        if length > limit:
            raise self.broken(f"{what} is {length} bytes long, more than {limit}", offset=start)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.broken(f"{what} is not UTF-8", offset=start) from None

    def skip_strings(self, count: int) -> None:
        """Pass over ``count`` strings. Vocabularies have hundreds of thousands, so this loop calls nothing it need not."""
        unpack = struct.Struct(self.order + "Q").unpack_from
        chunk, at = self._chunk, self._at
        for _ in range(count):
            if at + 8 > len(chunk):
                self._at = at
                self._require(8)
                chunk, at = self._chunk, self._at
            at += 8 + unpack(chunk, at)[0]
        self._at = at

    def end(self) -> int:
        """The offset reached, once it is sure that the file goes so far."""
        self._check_within(self.offset)
        return self.offset

    def _require(self, length: int) -> None:
        if self._at + length > len(self._chunk):
            self._read_on(length)

    def _read_on(self, length: int) -> None:
        start = self.offset
        self._check_within(start + length)
        kept = self._chunk[self._at :]
        wanted = max(length - len(kept), self._read_bytes)
        ends = MAX_HEADER_BYTES if self._source.size_bytes is None else min(MAX_HEADER_BYTES, self._source.size_bytes)
        wanted = min(wanted, ends - start - len(kept))
        if wanted > 0:
            kept += self._source.read(start + len(kept), wanted)
        self._check_within(start + length)
        if len(kept) < length:
            raise self.broken("the file ends inside its header", offset=start + len(kept), is_cut_off=True)
        self._start, self._chunk, self._at = start, kept, 0
        self._read_bytes = min(2 * self._read_bytes, LARGEST_READ_BYTES)

    def _check_within(self, end: int) -> None:
        size_bytes = self._source.size_bytes
        if size_bytes is not None and end > size_bytes:
            raise self.broken(f"the header goes on to byte {end}, the file has {size_bytes} bytes")
        if end > MAX_HEADER_BYTES:
            raise self.broken(f"the header goes on to byte {end}, more than this tool reads ({MAX_HEADER_BYTES})")


def read_metadata(reader: HeaderReader, count: int) -> tuple[dict[str, Json], dict[str, str]]:
    """The ``count`` keys with their values, and each key's type by the format's own name.

    Numbers, bools and strings of up to ``MAX_KEPT_TEXT_BYTES`` are kept, and so are arrays of up to ``MAX_KEPT_NUMBERS`` numbers
    or ``MAX_KEPT_STRINGS`` strings. Of longer ones only the length stays: ``{"type": "array", "item_type": "string", "length":
    151936}``, ``{"type": "string", "length": 7031645}`` (bytes).

    Raises:
        MalformedFileError: the section breaks the format's rules or this reader's bounds.
    """
    if count > MAX_KEYS:
        raise reader.broken(f"{count} metadata keys, more than {MAX_KEYS}", offset=16)
    values = _Values(reader)
    metadata: dict[str, Json] = {}
    types: dict[str, str] = {}
    for _ in range(count):
        start = reader.offset
        key = reader.text(MAX_KEY_BYTES, "a metadata key")
        if key in metadata:
            raise reader.broken(f"the metadata key {shown(key)} appears twice", offset=start)
        type_id = reader.number("I")
        metadata[key] = values.value(type_id, f"metadata key {shown(key)}")
        types[key] = _TYPE_NAMES[type_id]
    return metadata, types


class _Values:
    """Decodes values one after another, and knows how much has been kept so far."""

    def __init__(self, reader: HeaderReader) -> None:
        self._reader = reader
        self._kept_bytes = 0
        self._nested_arrays = 0

    def value(self, type_id: int, what: str, *, keep: bool = True, depth: int = 0) -> Json:
        if type_id in _NUMBERS:
            return self._numbers(type_id, 1, what)[0]
        if type_id == _STRING:
            return self._string(keep=keep)
        if type_id == _ARRAY:
            return self._array(what, keep=keep, depth=depth)
        raise self._reader.broken(f"{what} has the unknown value type {type_id}")

    def _numbers(self, type_id: int, count: int, what: str) -> list[Json]:
        start = self._reader.offset
        layout = struct.Struct(f"{self._reader.order}{count}{_NUMBERS[type_id][1]}")
        numbers = list(layout.unpack(self._reader.take(layout.size)))
        if type_id != _BOOL:
            return numbers
        if any(number > 1 for number in numbers):
            raise self._reader.broken(f"{what} has a bool that is neither 0 nor 1", offset=start)
        return [number == 1 for number in numbers]

    def _string(self, *, keep: bool) -> Json:
        length = self._reader.number("Q")
        if keep and length <= MAX_KEPT_TEXT_BYTES and self._afford(length):
            return self._reader.take(length).decode("utf-8", errors="replace")
        self._reader.skip(length)
        return {"type": "string", "length": length}

    def _array(self, what: str, *, keep: bool, depth: int) -> Json:
        item_type, count = self._reader.number("I"), self._reader.number("Q")
        if item_type not in _TYPE_NAMES:
            raise self._reader.broken(f"{what} is an array of the unknown value type {item_type}")
        limit = MAX_KEPT_NUMBERS if item_type in _NUMBERS else MAX_KEPT_STRINGS
        keep = keep and count <= limit and self._afford(count * _NUMBER_COST_BYTES)
        if item_type == _ARRAY:
            return self._nested(what, count, keep=keep, depth=depth + 1)
        if keep:
            if item_type == _STRING:
                return [self._string(keep=True) for _ in range(count)]
            return self._numbers(item_type, count, what)
        if item_type == _STRING:
            self._reader.skip_strings(count)
        else:
            self._reader.skip(count * struct.calcsize("<" + _NUMBERS[item_type][1]))
        return {"type": "array", "item_type": _TYPE_NAMES[item_type], "length": count}

    def _nested(self, what: str, count: int, *, keep: bool, depth: int) -> Json:
        self._nested_arrays += count
        if depth >= MAX_ARRAY_DEPTH or self._nested_arrays > MAX_NESTED_ARRAYS:
            raise self._reader.broken(f"{what} has more or deeper nested arrays than this tool reads")
        arrays = [self._array(what, keep=keep, depth=depth) for _ in range(count)]
        return arrays if keep else {"type": "array", "item_type": "array", "length": count}

    def _afford(self, size_bytes: int) -> bool:
        """Whether this much more may be kept; counted only where it may."""
        if self._kept_bytes + size_bytes > MAX_KEPT_BYTES:
            return False
        self._kept_bytes += size_bytes
        return True
