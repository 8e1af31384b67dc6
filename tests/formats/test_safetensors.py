"""safetensors headers: every rule of the format, any bytes, and the same judgement as the reference library's.

The rules: README.md "Format" and ``validate()`` in safetensors/src/tensor.rs, github.com/huggingface/safetensors v0.8.0.
"""

from __future__ import annotations

import json
import re
import sys
from math import prod
from typing import Any

import pytest
from byte_sources import BytesSource
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from local_repo import SAFETENSORS_DTYPE_BITS

from hubaudit.data.dtypes import bits_of
from hubaudit.errors import MalformedFileError
from hubaudit.formats.documents import without_repeats
from hubaudit.formats.safetensors import (
    FIRST_READ_BYTES,
    MAX_HEADER_BYTES,
    check_header,
    read_safetensors,
    read_served_header,
)
from hubaudit.types import TensorInfo, WeightFile

Entry = dict[str, Any]


def raw(header: bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file of any header text and any data."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def made(entries: dict[str, Any], data_bytes: int = 0) -> bytes:
    """A file of this header and so many bytes of data."""
    return raw(json.dumps(entries).encode(), bytes(data_bytes))


def entry(dtype: Any, shape: Any, start: Any, end: Any, **more: Any) -> Entry:
    """One tensor's entry."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end], **more}


def read(content: bytes, *, size_known: bool = True) -> WeightFile:
    """The header of these bytes."""
    return read_safetensors(BytesSource(content, path="x.safetensors", size_known=size_known))


def refusal(content: bytes) -> MalformedFileError:
    """The error for these bytes: one printable line that names the file, short enough to be read."""
    with pytest.raises(MalformedFileError) as caught:
        read(content)
    error = caught.value
    assert error.message.startswith("`x.safetensors`")
    assert error.message.isprintable()
    assert len(error.message) < 700
    assert error.exit_code == 5
    return error


# --- files that are right ------------------------------------------------------------------------------------------------


def test_a_plain_file() -> None:
    """Names, dtypes, shapes and bytes in the order of the data, and what the file says of itself."""
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("F32", [2, 3], 4, 28),
        "a": entry("BF16", [2], 0, 4),
    }
    file = read(made(header, 28))
    assert file == WeightFile(
        path="x.safetensors",
        size_bytes=8 + len(json.dumps(header)) + 28,
        format="safetensors",
        tensors=(TensorInfo("a", "BF16", (2,), 4), TensorInfo("b", "F32", (2, 3), 24)),
        metadata={"format": "pt"},
    )


@pytest.mark.parametrize("header", [b"{}", b'{"__metadata__":{}}', b'{"__metadata__":null}', b"{}" + b" " * 100])
def test_a_file_without_tensors(header: bytes) -> None:
    """It is one all the same."""
    assert (read(raw(header)).tensors, read(raw(header)).metadata) == ((), {})


@pytest.mark.parametrize(("dtype", "bits"), SAFETENSORS_DTYPE_BITS.items())
def test_every_dtype_has_its_width(dtype: str, bits: int) -> None:
    """Eight elements fill as many bytes as one element has bits, also below a byte."""
    assert read(made({"w": entry(dtype, [8], 0, bits)}, bits)).tensors == (TensorInfo("w", dtype, (8,), bits),)
    for other in {4, 6, 8, 16, 32, 64} - {bits}:
        assert f"needs {bits} bytes but has {other}" in refusal(made({"w": entry(dtype, [8], 0, other)}, other)).message


@pytest.mark.parametrize(("dtype", "elements"), [("F4", 1), ("F4", 3), ("F6_E2M3", 1), ("F6_E3M2", 2), ("F6_E2M3", 3)])
def test_a_tensor_ends_at_a_byte(dtype: str, elements: int) -> None:
    """Narrow elements must fill whole bytes together."""
    size = (elements * SAFETENSORS_DTYPE_BITS[dtype] + 7) // 8
    assert "no whole number of bytes" in refusal(made({"w": entry(dtype, [elements], 0, size)}, size)).message


def test_scalars_and_empty_tensors() -> None:
    """No dimensions are one element, a zero among them none; several of no bytes may lie at one place."""
    header = {
        "empty": entry("F32", [0], 0, 0),
        "also": entry("I64", [3, 0, 5], 0, 0),
        "scalar": entry("F32", [], 0, 4),
        "last": entry("U8", [0, 2**62], 4, 4),
    }
    assert [(tensor.name, tensor.shape, tensor.stored_bytes) for tensor in read(made(header, 4)).tensors] == [
        ("empty", (0,), 0),
        ("also", (3, 0, 5), 0),
        ("scalar", (), 4),
        ("last", (0, 2**62), 0),
    ]


@pytest.mark.parametrize("padding", [b" ", b" " * 7, b" " * 5000, b"\n\t \r"])
def test_padding_after_the_header(padding: bytes) -> None:
    """Writers fill up to eight bytes with spaces; the padding is part of the header."""
    text = json.dumps({"w": entry("U8", [2], 0, 2)}).encode() + padding
    assert read(raw(text, b"ab")).tensors[0].stored_bytes == 2


def test_names_of_any_kind() -> None:
    """Empty, with spaces, beyond ASCII, escaped, and those that look like something else."""
    names = ["", " ", "é", "名前", "😀", "a\nb", "a/../b", '"', "\\", "\x7f", "dtype", "data_offsets", "__metadata"]
    header = {name: entry("U8", [1], at, at + 1) for at, name in enumerate(names)}
    for ensure_ascii in (True, False):
        text = json.dumps(header, ensure_ascii=ensure_ascii).encode()
        assert [tensor.name for tensor in read(raw(text, bytes(len(names)))).tensors] == names


def test_more_in_an_entry_than_we_know() -> None:
    """The reference reader passes over keys that it does not know, so files with them load."""
    assert read(made({"w": entry("U8", [1], 0, 1, note={"a": [1, None]})}, 1)).tensors[0].name == "w"


@pytest.mark.parametrize("dims", [8, 64])
def test_many_dimensions(dims: int) -> None:
    """As many as torch and numpy can hold."""
    assert read(made({"w": entry("U8", [1] * dims, 0, 1)}, 1)).tensors[0].shape == (1,) * dims


# --- how much is read ----------------------------------------------------------------------------------------------------


def test_a_small_header_is_one_read() -> None:
    """Of a file of any size comes the first piece."""
    source = BytesSource(made({"w": entry("U8", [10**6], 0, 10**6)}, 10**6))
    read_safetensors(source)
    assert source.reads == [(0, FIRST_READ_BYTES)]


@pytest.mark.parametrize("beyond", [0, 1, 100_000])
def test_a_large_header_is_two_reads_to_the_byte(beyond: int) -> None:
    """The second brings the rest of the header, none of the data, and none of what came before."""
    text = json.dumps({"w": entry("U8", [10**6], 0, 10**6)}).encode()
    text += b" " * (FIRST_READ_BYTES - 8 + beyond - len(text))
    source = BytesSource(raw(text, bytes(10**6)), size_known=False)
    assert read_safetensors(source).tensors[0].stored_bytes == 10**6
    assert source.reads == [(0, FIRST_READ_BYTES), *([(FIRST_READ_BYTES, beyond)] if beyond else [])]


def test_a_lying_length_is_not_read() -> None:
    """A length of a million terabytes costs one read, and so does one beyond the file's end."""
    for length in (2**64 - 1, 10**12, MAX_HEADER_BYTES + 1, 1000):
        source = BytesSource(raw(b"{}", length=length))
        with pytest.raises(MalformedFileError):
            read_safetensors(source)
        assert len(source.reads) == 1


# --- files that are wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(8))
def test_a_file_too_short_for_a_length(size: int) -> None:
    """The first eight bytes are the header's length."""
    error = refusal(bytes(size))
    assert (error.reason, error.offset) == (f"too short for safetensors: {size} bytes", 0)


def test_the_longest_header() -> None:
    """At the limit it is read, above it is not, whatever the file's size is."""
    limit = (MAX_HEADER_BYTES).to_bytes(8, "little")
    above = (MAX_HEADER_BYTES + 1).to_bytes(8, "little")
    with pytest.raises(MalformedFileError, match="header is cut off"):
        read_safetensors(BytesSource(limit + b"{}", claimed_size=2 * MAX_HEADER_BYTES))
    with pytest.raises(MalformedFileError, match="above the format's limit 100000000"):
        read_safetensors(BytesSource(above + b"{}", claimed_size=2 * MAX_HEADER_BYTES))


def test_a_header_longer_than_the_file() -> None:
    """Known before anything more is read."""
    assert "header length 3 does not fit in a file of 10 bytes" in refusal(raw(b"{}", length=3)).message


def test_a_header_cut_off() -> None:
    """Where the size is not known, the missing bytes tell."""
    with pytest.raises(MalformedFileError, match="the header is cut off: 2 of 3 bytes"):
        read_safetensors(BytesSource(raw(b"{}", length=3), claimed_size=100))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "does not start with `{`"),
        (b" {}", "does not start with `{`"),
        (b"\xef\xbb\xbf{}", "does not start with `{`"),
        (b"[]", "does not start with `{`"),
        (b"null", "does not start with `{`"),
        (b"\0\0\0\0", "does not start with `{`"),
        (b"{", "not JSON"),
        (b"{}x", "not JSON"),
        (b"{}\0", "not JSON"),
        (b"{}{}", "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":}', "not JSON"),
        (b'{"a\n":{}}', "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"{/**/}", "not JSON"),
        (b'{"\xff":1}', "not UTF-8"),
        (b'{"\xed\xa0\x80":1}', "not UTF-8"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,0]}}', "not acceptable JSON"),
        (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":NaN}}', "NaN is no JSON"),
        (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":-Infinity}}', "-Infinity is no JSON"),
    ],
)
def test_a_header_that_is_no_json_object(text: bytes, words: str) -> None:
    """Said with the byte where it goes wrong, counted from the file's start."""
    error = refusal(raw(text))
    assert words in error.reason
    assert error.offset is not None
    assert error.offset >= 8


def test_the_byte_where_it_goes_wrong() -> None:
    """An offset that can be looked up in the file."""
    for name in ("a", "é", "名前😀"):
        content = raw(f'{{"{name}": nope}}'.encode())
        offset = refusal(content).offset
        assert offset is not None
        assert content[offset : offset + 4] == b"nope"


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":%s,"a":%s}',
        b'{"a":%s,"\\u0061":%s}',
        b'{"__metadata__":{},"a":%s,"a":%s}',
        b'{"__metadata__":{"x":"1","x":"2"},"a":%s,"b":%s}',
        b'{"__metadata__":{},"__metadata__":{},"a":%s,"b":%s}',
    ],
)
def test_keys_that_repeat(text: bytes) -> None:
    """The format forbids them: which of two tensors of one name counts, readers may see differently."""
    one = b'{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    assert "appears twice" in refusal(raw(text % (one, one), b"x")).reason


def test_a_repeated_key_among_very_many() -> None:
    """It is found without comparing each with each."""
    names = [b'"%d":0' % number for number in range(200_000)]
    assert "the key '199999' appears twice" in refusal(raw(b"{" + b",".join([*names, names[-1]]) + b"}")).reason


def test_keys_that_repeat_in_an_entry() -> None:
    """There too."""
    text = b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}'
    assert "the key 'dtype' appears twice" in refusal(raw(text, b"x")).reason


@pytest.mark.parametrize("value", [None, 1, "U8", [], ["U8", [1], [0, 1]], {}, {"dtype": "U8", "shape": [1]}])
def test_an_entry_that_is_none(value: Any) -> None:
    """Each tensor has dtype, shape and data_offsets."""
    assert "does not have dtype, shape and data_offsets" in refusal(made({"w": value}, 1)).reason


@pytest.mark.parametrize("dtype", ["bf16", "F128", "", "F32 ", "float32", None, 5, ["F32"], {"F32": None}, "X" * 1000])
def test_a_dtype_that_is_none(dtype: Any) -> None:
    """Names are exact, and long nonsense is cut."""
    assert "unknown dtype" in refusal(made({"w": entry(dtype, [1], 0, 4)}, 4)).reason


@pytest.mark.parametrize(
    "shape", [None, 5, "12", {}, [-1], [1.0], [True], ["1"], [None], [[1]], [2**63], [2**200], [1] * 65, [1] * 100_000]
)
def test_a_shape_that_is_none(shape: Any) -> None:
    """Lists of counts, as many as a tensor can have dimensions."""
    assert "impossible shape" in refusal(made({"w": entry("U8", shape, 0, 1)}, 1)).reason


@pytest.mark.parametrize(
    "offsets", [None, 5, [], [0], [0, 1, 2], [1, 0], [-1, 0], [0, 1.0], [False, True], ["0", "1"], [0, 2**63], {}]
)
def test_offsets_that_are_none(offsets: Any) -> None:
    """Two counts, the second not before the first."""
    header = {"w": {"dtype": "U8", "shape": [1], "data_offsets": offsets}}
    assert "impossible data_offsets" in refusal(made(header, 1)).reason


def test_a_shape_that_needs_more_than_any_file() -> None:
    """Its product is counted exactly, and said briefly."""
    assert "needs" in refusal(made({"w": entry("F64", [2**62] * 64, 0, 8)}, 8)).reason


@pytest.mark.parametrize(
    ("header", "data_bytes", "words"),
    [
        ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, 3, "'b', at 1 in the data, overlaps"),
        ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 0, 2)}, 2, "'b', at 0 in the data, overlaps"),
        ({"a": entry("U8", [3], 0, 3), "b": entry("U8", [1], 1, 2)}, 3, "'b', at 1 in the data, overlaps"),
        ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [0], 1, 1)}, 2, "'b', at 1 in the data, overlaps"),
        ({"a": entry("U8", [2], 1, 3)}, 3, "'a', at 1 in the data, leaves 1 bytes unused"),
        ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [1], 4, 5)}, 5, "'b', at 4 in the data, leaves 2 bytes unused"),
        ({"a": entry("U8", [0], 7, 7)}, 7, "leaves 7 bytes unused"),
        ({"a": entry("U8", [2], 0, 2)}, 1, "cut off: tensors need 2 bytes of data, the file holds 1"),
        ({"a": entry("U8", [2], 0, 2)}, 3, "1 bytes after the last tensor belong to none"),
        ({}, 1, "1 bytes after the last tensor belong to none"),
    ],
)
def test_tensors_fill_the_data_exactly(header: dict[str, Any], data_bytes: int, words: str) -> None:
    """No holes, no overlaps, nothing beyond, and the file as long as it says."""
    assert words in refusal(made(header, data_bytes)).reason


@pytest.mark.parametrize("what", ["overlap", "hole", "last overlaps", "each has a shape of its own", "one more tensor"])
def test_a_refusal_costs_no_more_than_a_valid_header(what: str) -> None:
    """Tensors that lie wrong are found by a sort and a pass over all, without a step of Python for each: there may be a million."""
    count = 3_000
    header = {f"t{at}": entry("F32", [1], 4 * at, 4 * at + 4) for at in range(count)}
    header |= {
        "overlap": {name: entry("F32", [1], 0, 4) for name in header},
        "hole": {f"t{at}": entry("F32", [1], 8 * at, 8 * at + 4) for at in range(count)},
        "last overlaps": {f"t{count - 1}": entry("F32", [1], 4 * count - 8, 4 * count - 4)},
        "each has a shape of its own": {f"t{at}": entry("U8", [at], 0, at) for at in range(count)},
        "one more tensor": {"more": entry("F32", [1], 4, 8)},
    }[what]
    calls = 0

    def counted(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)
    try:
        with pytest.raises(MalformedFileError, match="in the data"):
            check_header(header, "x", data_bytes=None)
    finally:
        sys.setprofile(None)
    a_shape = 5  # calls for each that was not met before, as in a valid header
    assert calls < 500 + (a_shape * count if "shape" in what else 0)


@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"dtype": "X", "shape": [1], "data_offsets": [0, 4]}, "unknown dtype"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "impossible shape"),
        ({"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}, "impossible shape"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4.0]}, "impossible data_offsets"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}, "impossible data_offsets"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}, "impossible data_offsets"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 5]}, "needs 4 bytes but has 5"),
        ({"dtype": "F32", "shape": [1]}, "does not have"),
    ],
)
def test_the_broken_entry_is_the_one_that_is_named(broken: dict[str, Any], words: str, place: int) -> None:
    """Wherever it stands among entries that are right, and though they overlap too."""
    header: dict[str, Any] = {f"t{at}": entry("F32", [1], 0, 4) for at in range(9)}
    name = list(header)[place]
    header[name] = broken
    with pytest.raises(MalformedFileError, match=words) as caught:
        check_header(header, "x", data_bytes=None)
    assert f"'{name}'" in caught.value.message


@pytest.mark.parametrize("metadata", [[], "x", 5, True, {"a": 1}, {"a": None}, {"a": {}}, {"a": ["b"]}])
def test_metadata_that_is_none(metadata: Any) -> None:
    """An object of strings, or nothing."""
    assert "`__metadata__` is not an object of strings" in refusal(made({"__metadata__": metadata})).reason


@pytest.mark.parametrize(
    "header",
    [{"\ud800": entry("U8", [0], 0, 0)}, {"__metadata__": {"\udfff": "x"}}, {"__metadata__": {"x": "a\udc80"}}],
)
def test_text_that_is_no_unicode(header: dict[str, Any]) -> None:
    r"""JSON can spell half a character (``\ud800``); the reference reader refuses it, and it could not be printed."""
    assert "no Unicode" in refusal(made(header)).reason


def test_a_hostile_name_in_a_message() -> None:
    """Neither moves the cursor nor fills the screen."""
    message = refusal(made({"\x1b[2J" + "x" * 100_000: 5})).message
    assert "\\x1b[2J" in message


# --- headers that the Hub decoded ----------------------------------------------------------------------------------------

SERVED = {"__metadata__": {"format": "pt"}, "w": entry("F32", [250], 0, 1000)}
COMPACT = 8 + len(json.dumps(SERVED, separators=(",", ":"))) + 1000


@pytest.mark.parametrize("size", [None, COMPACT, COMPACT + 5, COMPACT + 5_000_000])
def test_a_served_header(size: int | None) -> None:
    """The same result as from the file, whatever white space the file's header has."""
    file = read_served_header(SERVED, "x.safetensors", size_bytes=size)
    assert file == WeightFile(
        path="x.safetensors",
        size_bytes=size,
        format="safetensors",
        tensors=(TensorInfo("w", "F32", (250,), 1000),),
        metadata={"format": "pt"},
    )


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "cut off"),
        (1000, "cut off"),
        (1008, "cut off"),
        (MAX_HEADER_BYTES + 1009, "belong neither to header nor tensors"),
    ],
)
def test_a_served_header_and_the_files_size(size: int, words: str) -> None:
    """A file that is too small for its tensors, or larger than its header can explain, is another file."""
    with pytest.raises(MalformedFileError, match=words):
        read_served_header(SERVED, "x.safetensors", size_bytes=size)


# --- laws ----------------------------------------------------------------------------------------------------------------

DTYPES = st.sampled_from(sorted(SAFETENSORS_DTYPE_BITS))
SHAPES = st.lists(st.integers(0, 6), max_size=4)
NAMES = st.text(max_size=12).filter(lambda name: name != "__metadata__" and not re.search("[\ud800-\udfff]", name))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """A valid header in any order of its entries, and the bytes of its data."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(NAMES, max_size=6, unique=True)):
        dtype, shape = draw(DTYPES), draw(SHAPES)
        bits = SAFETENSORS_DTYPE_BITS[dtype] * prod(shape)
        if bits % 8:
            shape = [*shape, 4]  # four elements of any width fill whole bytes
            bits *= 4
        header[name] = entry(dtype, shape, end, end + bits // 8)
        end += bits // 8
    names = draw(st.permutations(list(header)))
    metadata = draw(st.none() | st.dictionaries(NAMES, NAMES, max_size=2))
    shown = {} if metadata is None else {"__metadata__": metadata}
    return {**shown, **{name: header[name] for name in names}}, end


def as_entries(tensors: tuple[TensorInfo, ...]) -> dict[str, Any]:
    """Tensors laid out one after another, as a header has them."""
    entries: dict[str, Any] = {}
    end = 0
    for tensor in tensors:
        entries[tensor.name] = entry(tensor.dtype, list(tensor.shape), end, end + tensor.stored_bytes)
        end += tensor.stored_bytes
    return entries


@given(layout=layouts(), padding=st.integers(0, 20), compact=st.booleans())
def test_a_valid_layout_comes_back(layout: tuple[dict[str, Any], int], padding: int, compact: bool) -> None:
    """What was laid out is what is read, from the file and from the Hub's decoding of it."""
    header, data_bytes = layout
    text = json.dumps(header, separators=(",", ":") if compact else None, ensure_ascii=not compact).encode()
    content = raw(text + b" " * padding, bytes(data_bytes))
    file = read(content)
    metadata = header.pop("__metadata__", {})
    assert as_entries(file.tensors) == header
    assert (file.metadata, file.size_bytes) == (metadata, len(content))
    assert sum(tensor.stored_bytes for tensor in file.tensors) == data_bytes
    served = {"__metadata__": metadata, **header} if metadata else header
    assert read_served_header(served, "x.safetensors", size_bytes=len(content)) == file


def check_lawful(file: WeightFile, content: bytes) -> None:
    """What the format promises of a file that was accepted, worked out from the file anew."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    data_bytes = len(content) - 8 - length
    assert {tensor.name for tensor in file.tensors} == set(header)
    owners = [0] * data_bytes
    for tensor in file.tensors:
        said = header[tensor.name]
        start, end = said["data_offsets"]
        assert (tensor.dtype, list(tensor.shape), tensor.stored_bytes) == (said["dtype"], said["shape"], end - start)
        assert SAFETENSORS_DTYPE_BITS[tensor.dtype] * prod(tensor.shape) == 8 * (end - start)
        for at in range(start, end):
            owners[at] += 1
    assert owners == [1] * data_bytes


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid file with a few bytes changed, lost or added, its length told rightly or not."""
    header, data_bytes = draw(layouts())
    text = bytearray(json.dumps(header, separators=(",", ":")).encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        kind = draw(st.sampled_from(["change", "lose", "add", "digit"]))
        if kind == "add":
            text[at:at] = draw(st.binary(min_size=1, max_size=3))
        elif kind == "lose":
            del text[at : at + draw(st.integers(1, 8))]
        elif kind == "change":
            text[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        else:
            digits = [place for place, byte in enumerate(text) if 48 <= byte <= 57]
            if digits:
                text[draw(st.sampled_from(digits))] = draw(st.integers(48, 57))
    length = draw(st.just(len(text)) | st.integers(0, len(text) + 3))
    return raw(bytes(text), bytes(draw(st.just(data_bytes) | st.integers(0, data_bytes + 2))), length=length)


@given(content=st.binary(max_size=200) | st.binary(max_size=100).map(raw) | damaged())
@settings(max_examples=300)
def test_any_bytes_are_a_file_or_refused(content: bytes) -> None:
    """Nothing else is raised, and what is accepted keeps the format's promises: no total is ever wrong."""
    try:
        file = read(content)
    except MalformedFileError as error:
        file = None
        assert error.message.isprintable()  # noqa: PT017 - either end is right
    if file is not None:
        check_lawful(file, content)


CHANGES = st.sampled_from(["longer", "shorter", "dtype", "dimension", "start", "end", "lost", "more data", "less data"])


@given(layout=layouts(), change=CHANGES, data=st.data())
def test_a_header_changed_in_its_numbers_is_refused(
    layout: tuple[dict[str, Any], int], change: str, data: st.DataObject
) -> None:
    """A dimension, a width, an offset or a tensor more or less cannot pass for another total."""
    header, data_bytes = layout
    names = [name for name in header if name != "__metadata__" and prod(header[name]["shape"])]
    assume(names)
    name = data.draw(st.sampled_from(names))
    changed = header[name]
    start, end = changed["data_offsets"]
    match change:
        case "longer":
            changed["shape"] = [*changed["shape"], 2]
        case "shorter":
            changed["shape"] = [*changed["shape"], 0]
        case "dtype":
            width = SAFETENSORS_DTYPE_BITS[changed["dtype"]]
            changed["dtype"] = data.draw(DTYPES.filter(lambda dtype: SAFETENSORS_DTYPE_BITS[dtype] != width))
        case "dimension":
            assume(changed["shape"])
            changed["shape"] = [changed["shape"][0] + data.draw(st.integers(1, 5)), *changed["shape"][1:]]
        case "start":
            changed["data_offsets"] = [start + 1, end]
        case "end":
            changed["data_offsets"] = [start, end + data.draw(st.integers(1, 9))]
        case "lost":
            del header[name]
        case "more data":
            data_bytes += 1
        case "less data":
            data_bytes -= 1
    refusal(made(header, data_bytes))


@given(header=st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.integers() | st.text(max_size=4),
       lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), inner)), max_size=3),
       size=st.none() | st.integers(0, 1000))  # fmt: skip
def test_any_object_served_is_a_file_or_refused(header: dict[str, Any], size: int | None) -> None:
    """The Hub's decoding is no more trusted than the file."""
    try:
        file = read_served_header(header, "x.safetensors", size_bytes=size)
    except MalformedFileError:
        return
    tensors, _ = check_header(header, "x.safetensors", data_bytes=None)
    assert file.tensors == tensors


def test_a_very_large_header() -> None:
    """A hundred thousand tensors: the count, the last name and the sum come out right."""
    header = {
        f"model.layers.{at // 1000}.experts.{at % 1000}.weight": entry("BF16", [8, 4], 64 * at, 64 * at + 64)
        for at in range(100_000)
    }
    text = json.dumps(header).encode()
    source = BytesSource(raw(text), claimed_size=8 + len(text) + 6_400_000)
    file = read_safetensors(source)
    assert len(file.tensors) == 100_000
    assert file.tensors[-1].name == "model.layers.99.experts.999.weight"
    assert sum(tensor.stored_bytes for tensor in file.tensors) == 6_400_000
    assert len(source.reads) == 2


# --- the reference library -----------------------------------------------------------------------------------------------


def of_library(content: bytes) -> dict[str, tuple[str, list[int]]] | None:
    """What the reference library makes of a file; ``None`` where it refuses."""
    library = pytest.importorskip("safetensors")
    try:
        tensors = library.deserialize(content)
    except library.SafetensorError:
        return None
    return {name: (tensor["dtype"], list(tensor["shape"])) for name, tensor in tensors}


def of_ours(content: bytes) -> dict[str, tuple[str, list[int]]] | None:
    """The same of ours."""
    try:
        file = read(content)
    except MalformedFileError:
        return None
    return {tensor.name: (tensor.dtype, list(tensor.shape)) for tensor in file.tensors}


def test_the_reference_knows_the_same_dtypes() -> None:
    """Each with the same width, and no other."""
    library = pytest.importorskip("safetensors")
    for dtype, bits in SAFETENSORS_DTYPE_BITS.items():
        assert of_library(made({"w": entry(dtype, [8], 0, bits)}, bits)) == {"w": (dtype, [8])}
    with pytest.raises(library.SafetensorError, match="unknown variant") as caught:
        library.deserialize(made({"w": entry("X", [8], 0, 8)}, 8))
    named = re.findall("`([A-Z0-9_]+)`", str(caught.value).partition("expected")[2])
    assert set(named) == set(SAFETENSORS_DTYPE_BITS) == set(bits_of())


@pytest.mark.oracle
@given(layout=layouts(), padding=st.integers(0, 9))
@settings(max_examples=300, deadline=None)
def test_the_reference_accepts_what_we_accept(layout: tuple[dict[str, Any], int], padding: int) -> None:
    """Valid layouts, with the same names, dtypes and shapes."""
    header, data_bytes = layout
    content = raw(json.dumps(header).encode() + b" " * padding, bytes(data_bytes))
    assert of_ours(content) is not None
    assert of_ours(content) == of_library(content)


def differs_by_design(content: bytes) -> bool:
    """Where we judge otherwise on purpose (see the tests below), or where nobody could be misled."""
    length = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + length]
    try:
        json.loads(text, object_pairs_hook=without_repeats)
    except ValueError as error:
        if "appears twice" in str(error):
            return True
    return not text.startswith(b"{") or re.search(rb"[\[,:]\s*-0\s*[,\]}]", text) is not None


@pytest.mark.oracle
@given(content=damaged() | st.binary(max_size=60) | st.binary(max_size=60).map(raw))
@settings(max_examples=3000, deadline=None)
def test_the_reference_refuses_what_we_refuse(content: bytes) -> None:
    """Damaged files: the same judgement, and the same tensors where they pass."""
    assume(not differs_by_design(content))
    assert of_ours(content) == of_library(content)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(raw(b" {}"), id="starts with a space, where the format asks for {"),
        pytest.param(raw(b'{"__metadata__":{"x":"1","x":"2"}}'), id="a key twice, which the format forbids"),
        pytest.param(
            raw(
                b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}',
                b"x",
            ),
            id="a tensor twice, which the format forbids",
        ),
        pytest.param(raw(b'{"a":["U8",[1],[0,1]]}', b"x"), id="an entry that is an array"),
        pytest.param(made({"a": entry({"U8": None}, [1], 0, 1)}, 1), id="a dtype that is an object"),
        pytest.param(made({"a": entry("U8", [1] * 65, 0, 1)}, 1), id="more dimensions than torch or numpy hold"),
        pytest.param(made({"a": entry("U8", [0, 2**63], 0, 0)}), id="a dimension that no tensor can have"),
    ],
)
def test_where_we_are_stricter_than_the_reference(content: bytes) -> None:
    """The format's text, or no tensor anywhere could be it."""
    assert of_library(content) is not None
    assert of_ours(content) is None


@pytest.mark.oracle
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(made({"a": entry("U8", [2**62, 4, 0], 0, 0)}), id="no elements, by a product that overflows on the way"),
        pytest.param(raw(b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'), id="minus zero"),
        pytest.param(made({"a": entry("U8", [0], 0, 0, x=[[]] * 3)}).replace(b"[[]", b"[" * 130 + b"]" * 130, 1)
                     .replace(b", [], []]", b"", 1), id="a key that nobody reads, nested deeply"),
    ],
)  # fmt: skip
def test_where_we_are_laxer_than_the_reference(content: bytes) -> None:
    """Nothing is counted wrongly in any of them: all hold no elements."""
    length = len(content) - 8
    content = length.to_bytes(8, "little") + content[8:]
    assert of_library(content) is None
    tensors = of_ours(content)
    assert tensors is not None
    assert all(prod(shape) == 0 for _, shape in tensors.values())
