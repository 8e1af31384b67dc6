"""safetensors headers, checked to the format's own rules.

The format: 8 bytes little-endian header length, a JSON object ``{name: {dtype, shape, data_offsets}}`` with an optional
``__metadata__`` of strings, then the data, which the tensors must fill without holes or overlaps
(github.com/huggingface/safetensors, README.md "Format" and ``validate()`` in safetensors/src/tensor.rs, v0.8.0).
"""

from __future__ import annotations

import json
from itertools import accumulate, chain
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeGuard

from hubaudit.data.dtypes import bits_of
from hubaudit.errors import MalformedFileError
from hubaudit.formats.documents import byte_position, without_repeats
from hubaudit.formats.quoting import shown
from hubaudit.types import TensorInfo, WeightFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hubaudit.formats.source import ByteSource
    from hubaudit.types import Json

#: A file that announces more than this and does not have it is no safetensors file at all, rather than one that was cut off.
_LIKELY_HEADER_BYTES = 2**24
MAX_HEADER_BYTES = 100_000_000  # the reference implementation's MAX_HEADER_SIZE
FIRST_READ_BYTES = 32 * 1024  # holds the whole header of almost every one-file model, so one range request is enough
_MAX_DIMENSIONS = 64
_LEAST_ENTRY_BYTES = len('"":{"dtype":"U8","shape":[],"data_offsets":[0,0]}')
_OVER_COUNT = 2**63
_ENTRY_KEYS = ("dtype", "shape", "data_offsets")
_FIELDS = itemgetter(*_ENTRY_KEYS)


def read_safetensors(source: ByteSource) -> WeightFile:
    """Read and check one file's header: one range read, or two where the header is longer than the first.

    Raises:
        MalformedFileError: the file breaks one of the format's rules.
    """
    head = source.read(0, FIRST_READ_BYTES)
    size_bytes = source.size_bytes
    header_bytes = _header_length(head, source.path, size_bytes)
    text = head[8 : 8 + header_bytes]
    if len(text) < header_bytes:
        text += source.read(8 + len(text), header_bytes - len(text))
    if len(text) < header_bytes:
        raise MalformedFileError(
            source.path, f"the header is cut off: {len(text)} of {header_bytes} bytes", offset=8, is_cut_off=True
        )
    header = _decode(text, source.path)
    data_bytes = None if size_bytes is None else size_bytes - 8 - header_bytes
    tensors, metadata = check_header(header, source.path, data_bytes=data_bytes)
    return WeightFile(path=source.path, size_bytes=size_bytes, format="safetensors", tensors=tensors, metadata=metadata)


def check_header(
    header: Mapping[str, Json], path: str, *, data_bytes: int | None
) -> tuple[tuple[TensorInfo, ...], dict[str, Json]]:
    """Check a decoded header, as a file holds it or as the Hub serves it, and return its tensors in file order and its metadata.

    Args:
        header: the JSON object, ``__metadata__`` included.
        path: the file's name, for messages.
        data_bytes: the bytes that follow the header, or ``None`` where the file's size is not known.

    Raises:
        MalformedFileError: an entry is not what the format says, or the tensors do not fill the data exactly.
    """
    entries = dict(header)
    metadata = entries.pop("__metadata__", None)
    kinds = _Kinds()
    tensors = _at_once(entries, path, kinds) or _one_by_one(entries, path, kinds)
    if data_bytes is not None and (filled := sum([tensor.stored_bytes for tensor in tensors])) != data_bytes:
        raise MalformedFileError(path, _size_mismatch(filled, data_bytes), is_cut_off=data_bytes < filled)
    return tensors, _metadata(metadata, path)


def _at_once(entries: Mapping[str, Any], path: str, kinds: _Kinds) -> tuple[TensorInfo, ...] | None:
    """The tensors, each rule checked for all of them together, which takes half the time; ``None`` where an entry breaks one.

    Raises:
        MalformedFileError: every entry is right, and they do not lie end to end.
    """
    try:
        rows = [_FIELDS(entry) for entry in entries.values()]
        found = [kinds[dtype, tuple(shape)] for dtype, shape, _ in rows]
    except (KeyError, TypeError, ValueError):
        return None
    shapes, offsets = [shape for _, shape, _ in rows], [span for _, _, span in rows]
    if not (_are_lists_of_integers(shapes) and _are_lists_of_integers(offsets)):
        return None
    if not (all(map(str.isascii, entries)) or _is_unicode("".join(entries))):
        return None
    # What TensorInfo(...) does, but for a call of Python for each of 100,000.
    tensors = [tuple.__new__(TensorInfo, (name, *kind)) for name, kind in zip(entries, found, strict=True)]
    if not _fill(tensors, offsets):
        if not _are_spans(tensors, offsets):
            return None
        order = sorted(range(len(tensors)), key=offsets.__getitem__)
        tensors, offsets = [tensors[at] for at in order], [offsets[at] for at in order]
        if not _fill(tensors, offsets):
            _refuse_gaps(tensors, offsets, path)
    return tuple(tensors)


def _fill(tensors: list[TensorInfo], offsets: list[list[int]]) -> bool:
    """Whether the tensors, in this order, lie end to end at these offsets."""
    ends = list(accumulate([stored_bytes for _, _, _, stored_bytes in tensors]))
    expected = [[start, end] for start, end in zip([0, *ends], ends, strict=False)]
    return offsets == expected and sum(ends[-1:]) < _OVER_COUNT


def _are_spans(tensors: list[TensorInfo], offsets: list[list[int]]) -> bool:
    """Whether each pair of offsets is a start and an end that fit in 64 bits, with as many bytes between them as the tensor has."""
    if set(map(len, offsets)) != {2}:
        return False
    sizes = [end - start for start, end in offsets]
    return (
        sizes == [stored_bytes for _, _, _, stored_bytes in tensors]
        and min([start for start, _ in offsets]) >= 0
        and max([end for _, end in offsets]) < _OVER_COUNT
    )


def _refuse_gaps(tensors: Iterable[TensorInfo], offsets: Iterable[Sequence[int]], path: str) -> None:
    """Whether the tensors, sorted by where they begin, lie end to end.

    Raises:
        MalformedFileError: they do not, with the first that is out of its place.
    """
    filled = 0
    for tensor, (start, end) in zip(tensors, offsets, strict=True):
        if start != filled:
            what = (
                "overlaps the tensor before it" if start < filled else f"leaves {start - filled} bytes unused before it"
            )
            raise MalformedFileError(path, f"tensor {shown(tensor.name)}, at {start} in the data, {what}")
        filled = end


def _are_lists_of_integers(values: list[Any]) -> bool:
    """Whether each is a list of integers; ``True`` and 1.0 are none, though they equal one."""
    return set(map(type, values)) <= {list} and set(map(type, chain.from_iterable(values))) <= {int}


def _is_list_of_integers(value: Json) -> TypeGuard[list[int]]:
    return _are_lists_of_integers([value])


def _one_by_one(entries: Mapping[str, Json], path: str, kinds: _Kinds) -> tuple[TensorInfo, ...]:
    """The tensors, or what is wrong with the first that breaks a rule."""
    spans = [_sound(name, entry, kinds) or _entry(name, entry, path, kinds) for name, entry in entries.items()]
    spans.sort(key=itemgetter(0, 1))
    tensors = tuple(tensor for _, _, tensor in spans)
    _refuse_gaps(tensors, [(start, end) for start, end, _ in spans], path)
    return tensors


def read_served_header(header: Mapping[str, Json], path: str, *, size_bytes: int | None) -> WeightFile:
    """Check a header that the Hub decoded for us: the same rules, with the header's length known only to within its white space.

    Args:
        header: the JSON object of one file.
        path: the file's name.
        size_bytes: the whole file's size from the listing, or ``None`` where it is not known.

    Raises:
        MalformedFileError: as for a file, or the file is too small to hold its header and its tensors.
    """
    tensors, metadata = check_header(header, path, data_bytes=None)
    data_bytes = sum([tensor.stored_bytes for tensor in tensors])
    if size_bytes is not None:
        least = 8 + len("{}") + sum(map(len, header)) + _LEAST_ENTRY_BYTES * len(tensors) + data_bytes
        if size_bytes < least:
            raise MalformedFileError(
                path,
                f"the file is cut off: header and tensors need {least} bytes, the file has {size_bytes}",
                is_cut_off=True,
            )
        if size_bytes - 8 - data_bytes > MAX_HEADER_BYTES:
            raise MalformedFileError(
                path,
                f"the file has {size_bytes} bytes, of which {size_bytes - least} belong neither to header nor tensors",
            )
    return WeightFile(path=path, size_bytes=size_bytes, format="safetensors", tensors=tensors, metadata=metadata)


def _header_length(head: bytes, path: str, size_bytes: int | None) -> int:
    if len(head) < 8:
        raise MalformedFileError(path, f"too short for safetensors: {len(head)} bytes", offset=0, is_cut_off=True)
    header_bytes = int.from_bytes(head[:8], "little")
    if header_bytes > MAX_HEADER_BYTES:
        raise MalformedFileError(
            path, f"header length {header_bytes} is above the format's limit {MAX_HEADER_BYTES}", offset=0
        )
    if size_bytes is not None and 8 + header_bytes > size_bytes:
        raise MalformedFileError(
            path,
            f"header length {header_bytes} does not fit in a file of {size_bytes} bytes",
            offset=0,
            is_cut_off=header_bytes <= _LIKELY_HEADER_BYTES,
        )
    return header_bytes


def _decode(text: bytes, path: str) -> dict[str, Json]:
    if not text.startswith(b"{"):
        raise MalformedFileError(path, "the header does not start with `{`", offset=8)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=without_repeats, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise MalformedFileError(path, "the header is not UTF-8", offset=8 + error.start) from None
    except json.JSONDecodeError as error:
        raise MalformedFileError(
            path, f"the header is not JSON: {error.msg}", offset=8 + byte_position(error)
        ) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise MalformedFileError(path, f"the header is not acceptable JSON: {reason}", offset=8) from None
    if not isinstance(header, dict):
        raise MalformedFileError(path, "the header is not a JSON object", offset=8)
    return header


def _no_number(constant: str) -> Json:
    raise ValueError(f"{constant} is no JSON")


def _sound(name: str, entry: Any, kinds: _Kinds) -> tuple[int, int, TensorInfo] | None:
    """Start, end and tensor, where a quick look tells that no rule is broken: of a million entries the last may be the first that breaks one."""
    try:
        dtype, shape, offsets = _FIELDS(entry)
        kind = kinds[dtype, tuple(shape)]
        start, end = offsets
        is_sound = end - start == kind[2] and 0 <= start <= end < _OVER_COUNT and name.isascii()
    except (KeyError, TypeError, ValueError):
        return None
    return (start, end, TensorInfo(name, *kind)) if is_sound and _are_lists_of_integers([shape, offsets]) else None


def _entry(name: str, entry: Json, path: str, kinds: _Kinds) -> tuple[int, int, TensorInfo]:
    """Start, end and tensor."""
    if not isinstance(entry, dict) or not entry.keys() >= set(_ENTRY_KEYS):
        raise MalformedFileError(path, f"tensor {shown(name)} does not have dtype, shape and data_offsets")
    if not name.isascii() and not _is_unicode(name):
        raise MalformedFileError(path, f"tensor {shown(name)} has a name that is no Unicode")
    offsets, dtype, shape = entry["data_offsets"], entry["dtype"], entry["shape"]
    if not _is_span(offsets):
        raise MalformedFileError(path, f"tensor {shown(name)} has the impossible data_offsets {shown(offsets)}")
    start, end = offsets
    if not isinstance(dtype, str) or dtype not in kinds.widths:
        raise MalformedFileError(path, f"tensor {shown(name)} has the unknown dtype {shown(dtype)}")
    if not _is_list_of_integers(shape) or not _is_possible(shape):
        raise MalformedFileError(path, f"tensor {shown(name)} has the impossible shape {shown(shape)}")
    kind = (dtype, tuple(shape))
    bits = kinds.bits(*kind)
    if bits != 8 * (end - start):
        needed = f"{shown(bits // 8)} bytes" if bits % 8 == 0 else f"{shown(bits)} bits, no whole number of bytes,"
        raise MalformedFileError(
            path, f"tensor {shown(name)} of {dtype} {shown(shape)} needs {needed} but has {end - start}"
        )
    return start, end, TensorInfo(name, *kinds[kind])


class _Kinds(dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...], int]]):
    """Dtype and shape → both and the bytes: the layers of a model repeat a few of them thousands of times, so one tuple serves for all."""

    def __init__(self) -> None:
        super().__init__()
        self.widths = bits_of()

    def __missing__(self, key: tuple[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...], int]:
        """Work one out.

        Raises:
            ValueError: no tensor can have it.
        """
        if not _is_possible(key[1]) or (bits := self.bits(*key)) % 8:
            raise ValueError(key)
        self[key] = kind = (*key, bits // 8)
        return kind

    def bits(self, dtype: str, shape: tuple[int, ...]) -> int:
        """The bits that such a tensor needs.

        Raises:
            KeyError: the format has no such dtype.
        """
        return self.widths[dtype] * prod(shape)


def _is_possible(shape: Sequence[int]) -> bool:
    return len(shape) <= _MAX_DIMENSIONS and all(0 <= size < _OVER_COUNT for size in shape)


def _is_span(value: Json) -> TypeGuard[list[int]]:
    """Whether ``value`` is a start and an end behind it, which fit in 64 bits."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    start, end = value
    return type(start) is int and type(end) is int and 0 <= start <= end < _OVER_COUNT


def _metadata(value: Json, path: str) -> dict[str, Json]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise MalformedFileError(path, "`__metadata__` is not an object of strings")
    if not all(_is_unicode(key) and _is_unicode(str(item)) for key, item in value.items()):
        raise MalformedFileError(path, "`__metadata__` holds text that is no Unicode")
    return value


def _is_unicode(text: str) -> bool:
    r"""Whether ``text`` is free of lone surrogates, which JSON can spell (``\ud800``) and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _size_mismatch(filled: int, data_bytes: int) -> str:
    if data_bytes < filled:
        return f"the file is cut off: tensors need {filled} bytes of data, the file holds {data_bytes}"
    return f"{data_bytes - filled} bytes after the last tensor belong to none"
