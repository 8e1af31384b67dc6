"""GGUF headers: files assembled byte by byte after docs/gguf.md, files of the gguf package's own writer, and broken ones."""

from __future__ import annotations

import struct
from importlib.metadata import version
from typing import Any

import pytest
from byte_sources import BytesSource
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.data import table
from hubaudit.errors import MalformedFileError
from hubaudit.formats import gguf_values
from hubaudit.formats.gguf import read_gguf
from hubaudit.types import TensorInfo, WeightFile

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
CODES = dict(
    zip((UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, UINT64, INT64, FLOAT64), "BbHhIif?Qqd", strict=True)
)
F32, Q4_0, Q4_K = 0, 2, 12

Key = tuple[str | bytes, int, Any]
Tensor = tuple[str | bytes, tuple[int, ...], int, int]


class Assembler:
    """Writes the structures of docs/gguf.md in one byte order."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def pack(self, code: str, value: Any) -> bytes:
        return struct.pack(self.order + code, value)

    def string(self, text: str | bytes) -> bytes:
        raw = text.encode() if isinstance(text, str) else text
        return self.pack("Q", len(raw)) + raw

    def value(self, kind: int, value: Any) -> bytes:
        if kind == STRING:
            return self.string(value)
        if kind == ARRAY:
            item_kind, items = value
            return (
                self.pack("I", item_kind)
                + self.pack("Q", len(items))
                + b"".join(self.value(item_kind, item) for item in items)
            )
        return self.pack(CODES[kind], value)

    def tensor(self, name: str | bytes, dims: tuple[int, ...], ggml_type: int, offset: int) -> bytes:
        dimensions = b"".join(self.pack("Q", dim) for dim in dims)
        return (
            self.string(name)
            + self.pack("I", len(dims))
            + dimensions
            + self.pack("I", ggml_type)
            + self.pack("Q", offset)
        )

    def file(
        self, keys: list[Key], tensors: list[Tensor], *, data_bytes: int = 0, version: int = 3, alignment: int = 32
    ) -> bytes:
        head = b"GGUF" + self.pack("I", version) + self.pack("Q", len(tensors)) + self.pack("Q", len(keys))
        head += b"".join(self.string(key) + self.pack("I", kind) + self.value(kind, value) for key, kind, value in keys)
        head += b"".join(self.tensor(*tensor) for tensor in tensors)
        return head + bytes(-len(head) % alignment) + bytes(data_bytes)


def assemble(keys: list[Key] | None = None, tensors: list[Tensor] | None = None, **options: Any) -> bytes:
    """A little-endian file."""
    return Assembler().file(keys or [], tensors or [], **options)


def read(content: bytes) -> WeightFile:
    """What the parser finds in these bytes."""
    return read_gguf(BytesSource(content, path="model.gguf"))


def refused(content: bytes) -> MalformedFileError:
    """The error that these bytes must raise, which names the file."""
    with pytest.raises(MalformedFileError) as caught:
        read(content)
    assert caught.value.path == "model.gguf"
    return caught.value


TWO_TENSORS: list[Tensor] = [("a.weight", (64, 3), Q4_0, 0), ("b", (5,), F32, 128)]
# Q4_0: blocks of 32 elements in 18 bytes (ggml-common.h block_q4_0: one half and 16 bytes), so 64*3 elements take 6*18 = 108 bytes.


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("file_version", [2, 3])
def test_reads_tensors_in_either_byte_order(order: str, file_version: int) -> None:
    """Names, row-major shapes, types and block bytes are those of the table, in both byte orders and both versions."""
    keys: list[Key] = [("general.architecture", STRING, "llama")]
    found = read(Assembler(order).file(keys, TWO_TENSORS, data_bytes=128 + 20, version=file_version))
    assert found.format == "gguf"
    assert found.tensors == (TensorInfo("a.weight", "Q4_0", (3, 64), 108), TensorInfo("b", "F32", (5,), 20))
    assert found.metadata["general.architecture"] == "llama"
    assert found.metadata["GGUF.version"] == file_version
    assert found.metadata["GGUF.byte_order"] == ("little" if order == "<" else "big")


@pytest.mark.parametrize("order", ["<", ">"])
def test_reads_every_value_type(order: str) -> None:
    """Every value type of the format comes back as the value that was written."""
    keys: list[Key] = [
        ("u8", UINT8, 200),
        ("i8", INT8, -5),
        ("u16", UINT16, 65_000),
        ("i16", INT16, -30_000),
        ("u32", UINT32, 4_000_000_000),
        ("i32", INT32, -2_000_000_000),
        ("f32", FLOAT32, 0.5),
        ("yes", BOOL, True),
        ("no", BOOL, False),
        ("text", STRING, "grüße"),
        ("u64", UINT64, 2**63 + 1),
        ("i64", INT64, -(2**62)),
        ("f64", FLOAT64, 1e-6),
        ("heads", ARRAY, (UINT32, [8, 0, 4])),
        ("flags", ARRAY, (BOOL, [True, False])),
        ("tags", ARRAY, (STRING, ["a", ""])),
        ("empty", ARRAY, (FLOAT32, [])),
        ("nested", ARRAY, (ARRAY, [(INT32, [1, -1]), (STRING, ["x"]), (ARRAY, [(UINT8, [])])])),
    ]
    expected = {key: value for key, kind, value in keys if kind != ARRAY}
    expected |= {
        "heads": [8, 0, 4],
        "flags": [True, False],
        "tags": ["a", ""],
        "empty": [],
        "nested": [[1, -1], ["x"], [[]]],
    }
    found = read(Assembler(order).file(keys, [])).metadata
    assert {key: value for key, value in found.items() if not str(key).startswith("GGUF.")} == expected
    assert found["yes"] is True


def test_keeps_per_layer_lists_and_only_the_length_of_vocabularies() -> None:
    """An array of 4096 numbers is kept; longer arrays, long string arrays and huge strings leave their type and length."""
    keys: list[Key] = [
        ("heads", ARRAY, (UINT32, list(range(4096)))),
        ("scores", ARRAY, (FLOAT32, [0.0] * 4097)),
        ("tokens", ARRAY, (STRING, [f"token {number}" for number in range(5000)])),
        ("file", STRING, "x" * 70_000),
        ("deep", ARRAY, (ARRAY, [(STRING, ["a"] * 300)] * 300)),
        ("after", UINT8, 7),
    ]
    found = read(assemble(keys, TWO_TENSORS, data_bytes=148))
    assert found.metadata["heads"] == list(range(4096))
    assert found.metadata["scores"] == {"type": "array", "item_type": "float32", "length": 4097}
    assert found.metadata["tokens"] == {"type": "array", "item_type": "string", "length": 5000}
    assert found.metadata["file"] == {"type": "string", "length": 70_000}
    assert found.metadata["deep"] == {"type": "array", "item_type": "array", "length": 300}
    assert found.metadata["after"] == 7
    assert len(found.tensors) == 2


def test_what_is_kept_stays_bounded() -> None:
    """However many short arrays a header has, the numbers kept stay within the stated bound; the rest leave their length."""
    keys: list[Key] = [(f"a{number}", ARRAY, (UINT8, [1] * 4096)) for number in range(200)]
    found = read(assemble(keys)).metadata
    kept = sum(len(value) for value in found.values() if isinstance(value, list))
    assert 0 < kept * 40 <= gguf_values.MAX_KEPT_BYTES
    assert found["a199"] == {"type": "array", "item_type": "uint8", "length": 4096}


def test_split_keys_stay_in_the_metadata() -> None:
    """A split file's own keys are there for whoever joins the shards."""
    keys: list[Key] = [("split.no", UINT16, 1), ("split.count", UINT16, 3), ("split.tensors.count", INT32, 290)]
    found = read(assemble(keys)).metadata
    assert (found["split.no"], found["split.count"], found["split.tensors.count"]) == (1, 3, 290)


def test_alignment_moves_the_data() -> None:
    """general.alignment decides where the data starts and which offsets are allowed."""
    keys: list[Key] = [("general.alignment", UINT32, 1024)]
    content = assemble(keys, [("a", (4,), F32, 0), ("b", (4,), F32, 1024)], data_bytes=1040, alignment=1024)
    assert read(content).metadata["GGUF.data_offset"] == 1024
    assert "no multiple of 1024" in str(
        refused(assemble(keys, [("a", (4,), F32, 32)], data_bytes=2048, alignment=1024))
    )


def test_scalars_empty_tensors_and_gaps_are_allowed() -> None:
    """A tensor without dimensions has one element, one with a zero has none, and an aligned gap is no error."""
    tensors: list[Tensor] = [("scalar", (), F32, 0), ("none", (0, 7), F32, 64), ("gap", (1, 1, 1, 2), F32, 96)]
    found = read(assemble([], tensors, data_bytes=104))
    assert found.tensors == (
        TensorInfo("scalar", "F32", (), 4),
        TensorInfo("none", "F32", (7, 0), 0),
        TensorInfo("gap", "F32", (2, 1, 1, 1), 8),
    )


def test_reads_a_short_header_once_and_never_the_data() -> None:
    """A small header costs one read of the first chunk, however large the file."""
    content = assemble([], [("a", (1_000_000,), F32, 0)], data_bytes=4_000_000)
    source = BytesSource(content, size_known=False)
    assert read_gguf(source).size_bytes == len(content)
    assert source.reads == [(0, gguf_values.FIRST_READ_BYTES)]


def test_reads_a_long_header_in_growing_chunks() -> None:
    """A vocabulary of several MB is read once, forward, in chunks that double, and not much further than it goes."""
    tokens = ["t" * 30] * 200_000
    content = assemble([("tokens", ARRAY, (STRING, tokens)), ("end", UINT8, 1)], TWO_TENSORS, data_bytes=9_000_000)
    header_bytes = len(content) - 9_000_000
    source = BytesSource(content)
    assert read_gguf(source).metadata["end"] == 1
    ends = [offset + length for offset, length in source.reads]
    tokens_bytes = 8 + 30
    assert all(end <= offset <= end + tokens_bytes for (offset, _), end in zip(source.reads[1:], ends, strict=False))
    assert [length for _, length in source.reads[:6]] == [2**16, 2**17, 2**18, 2**19, 2**20, 2**21]
    assert header_bytes <= ends[-1] <= header_bytes + gguf_values.LARGEST_READ_BYTES


def test_long_arrays_of_numbers_are_not_read_at_all() -> None:
    """Scores and token types have a known width, so their bytes are never asked for."""
    keys: list[Key] = [("scores", ARRAY, (FLOAT32, [0.0] * 300_000)), ("end", UINT8, 1)]
    source = BytesSource(assemble(keys))
    assert read_gguf(source).metadata["end"] == 1
    assert source.read_bytes <= 2 * gguf_values.FIRST_READ_BYTES


@pytest.mark.parametrize(
    ("content", "reason", "offset"),
    [
        (b"", "", 0),
        (b"GG", "", None),
        (b"PK\x03\x04" + bytes(100), "not a GGUF file", 0),
        (b"GGUF" + struct.pack("<IIIQ", 1, 0, 0, 0), "version 1", 4),
        (b"GGUF" + struct.pack(">IIIQ", 1, 0, 0, 0), "version 1", 4),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4", 4),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version 0", 4),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "tensors, more than", 8),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "metadata keys, more than", 16),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0), "24 bytes", 24),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62), "bytes long", 24),
        (assemble([("k", BOOL, True)])[:37] + b"\x02" + bytes(26), "neither 0 nor 1", 37),
        (assemble([("k", UINT8, 1), ("k", UINT8, 2)]), "twice", 38),
        (assemble([(b"\xff", UINT8, 1)]), "UTF-8", 24),
        (assemble([("GGUF.version", UINT8, 1)]), "reserved", None),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"k", 13), "unknown value type 13", None),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", ARRAY, 99, 1), "unknown value type 99", None),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", ARRAY, UINT8, 2**64 - 1), "", None),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", ARRAY, STRING, 2**64 - 1), "", None),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", ARRAY, ARRAY, 2**64 - 1), "nested arrays", None),
        (b"GGUF" + struct.pack("<IQQQcIIQIQIQIQ", 3, 0, 1, 1, b"k", ARRAY, *(ARRAY, 1) * 4), "nested arrays", None),
        (assemble([("general.alignment", UINT32, 0)]), "not a power of two", None),
        (assemble([("general.alignment", UINT32, 24)]), "not a power of two", None),
        (assemble([("general.alignment", UINT64, 32)]), "as uint32", None),
        (assemble([("general.alignment", STRING, "32")]), "as uint32", None),
        (assemble([], [("a", (1, 1, 1, 1, 1), F32, 0)], data_bytes=4), "5 dimensions", 24),
        (assemble([], [("a", (2**40, 2**40), F32, 0)]), "impossible dimensions", 24),
        (assemble([], [("a", (0, 2**64 - 1), F32, 0)]), "impossible dimensions", 24),
        (assemble([], [("a", (33,), Q4_0, 0)], data_bytes=64), "no multiple of 32", 24),
        (assemble([], [("a", (), Q4_0, 0)], data_bytes=64), "no multiple of 32", 24),
        (assemble([], [("blk.0.w", (32,), 31, 0)], data_bytes=64), "'blk.0.w' has the ggml type 31", 24),
        (assemble([], [("a", (4,), F32, 16)], data_bytes=64), "no multiple of 32", 24),
        (assemble([], [("a", (4,), F32, 0), ("a", (4,), F32, 32)], data_bytes=64), "twice", 57),
        (assemble([], [("a", (9,), F32, 0), ("b", (4,), F32, 32)], data_bytes=64), "inside the one before", 57),
        (assemble([], [("a", (4,), F32, 32), ("b", (4,), F32, 0)], data_bytes=64), "inside the one before", 57),
        (assemble([], [("a", (4,), F32, 2**63)], data_bytes=64), "cut off", 128),
        (assemble([], [("a", (4,), F32, 0)], data_bytes=15), "cut off", 79),
        (assemble([], [(b"\xff", (4,), F32, 0)], data_bytes=16), "UTF-8", 24),
        (assemble([], [("a" * 1025, (4,), F32, 0)], data_bytes=16), "more than 1024", 24),
    ],
)
def test_refuses_what_breaks_the_format(content: bytes, reason: str, offset: int | None) -> None:
    """Every broken rule is one error that names the file, the rule and, where there is one, the byte."""
    error = refused(content)
    assert reason in error.reason
    if offset is not None:
        assert error.offset == offset


def test_messages_carry_no_raw_text_from_the_file() -> None:
    """A name with terminal escapes or of great length is shown quoted, escaped and short."""
    error = refused(assemble([], [("\x1b[2J" + "é" * 400, (4,), 31, 0)], data_bytes=16))
    assert error.reason.isprintable()
    assert error.reason.isascii()
    assert len(error.reason) < 250


def test_every_truncation_is_refused() -> None:
    """Cutting the file anywhere before its last tensor's end is an error, never a shorter answer."""
    keys: list[Key] = [("text", STRING, "abc"), ("list", ARRAY, (STRING, ["x", "yz"])), ("n", ARRAY, (INT64, [1, 2]))]
    content = assemble(keys, TWO_TENSORS, data_bytes=148)
    read(content)
    for length in range(len(content)):
        refused(content[:length])


def test_a_file_shorter_than_its_claimed_size_is_refused() -> None:
    """A source that says more bytes than it hands out is a truncated file, not an endless read."""
    content = assemble([("text", STRING, "a" * 100)])
    with pytest.raises(MalformedFileError, match="ends inside its header"):
        read_gguf(BytesSource(content[:60], claimed_size=len(content)))


def test_an_endless_header_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that never ends stops at the stated size, and nothing beyond it is read."""
    monkeypatch.setattr(gguf_values, "MAX_HEADER_BYTES", 300_000)
    head = b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", ARRAY, STRING, 2**60)
    source = BytesSource(head + bytes(500_000))
    with pytest.raises(MalformedFileError, match="more than this tool reads"):
        read_gguf(source)
    assert max(offset + length for offset, length in source.reads) == 300_000


@given(st.binary(max_size=400))
def test_random_bytes_raise_only_the_documented_error(content: bytes) -> None:
    """Whatever follows the magic, the only way out without an answer is MalformedFileError."""
    for head in (b"", b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03"):
        try:
            read(head + content)
        except MalformedFileError:
            continue


VALID = assemble(
    [("a", ARRAY, (STRING, ["x", "yy"])), ("general.alignment", UINT32, 32), ("l", ARRAY, (ARRAY, [(BOOL, [True])]))],
    TWO_TENSORS,
    data_bytes=148,
)


@settings(max_examples=400)
@given(
    st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 40)
)
def test_mutated_files_answer_or_raise_only_the_documented_error(changes: list[tuple[int, int]], cut: int) -> None:
    """A damaged file gives MalformedFileError or tensors that lie inside the file."""
    content = bytearray(VALID)
    for at, byte in changes:
        content[at] = byte
    content = content[: len(content) - cut]
    try:
        found = read(bytes(content))
    except MalformedFileError:
        return
    assert sum(tensor.stored_bytes for tensor in found.tensors) <= len(content)


# --- against the gguf package ----------------------------------------------------------------------------------------------


@pytest.mark.oracle
def test_the_type_table_is_the_packages() -> None:
    """ggml_types.json has every type of the installed gguf package, with its id and block, and no other."""
    constants = pytest.importorskip("gguf.constants")
    rows = {
        row["id"]: (row["name"], row["block_elements"], row["block_bytes"]) for row in table("ggml_types.json")["types"]
    }
    assert rows == {
        int(kind): (kind.name, *constants.GGML_QUANT_SIZES[kind]) for kind in constants.GGMLQuantizationType
    }
    assert all(version("gguf") in row["source"] for row in table("ggml_types.json")["types"])


def _by_package(path: Any) -> tuple[list[tuple[str, str, tuple[int, ...], int]], dict[str, Any], int]:
    """What gguf.GGUFReader finds in a file: tensors, fields, and where the data starts."""
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(path)
    tensors = [
        (tensor.name, tensor.tensor_type.name, tuple(reversed(tensor.shape.tolist())), int(tensor.n_bytes))
        for tensor in reader.tensors
    ]
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    return tensors, fields, int(reader.data_offset)


def _compare(path: Any) -> WeightFile:
    found = read(path.read_bytes())
    tensors, fields, data_offset = _by_package(path)
    assert [(tensor.name, tensor.dtype, tensor.shape, tensor.stored_bytes) for tensor in found.tensors] == tensors
    assert {key: value for key, value in found.metadata.items() if not key.startswith("GGUF.")} == fields
    assert found.metadata["GGUF.data_offset"] == data_offset
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("endian", ["LITTLE", "BIG"])
@pytest.mark.parametrize("alignment", [32, 128])
def test_agrees_with_the_package_on_every_type(tmp_path: Any, endian: str, alignment: int) -> None:
    """A file of the package's writer with one tensor of each type, and keys of each kind, reads as its own reader reads it."""
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian[endian])
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    writer.add_block_count(4)
    writer.add_head_count_kv([8, 8, 0, 4])
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(151_936)
    writer.add_causal_attention(True)
    writer.add_languages(["de", "en"])
    writer.add_chat_template("{{ messages }}")
    native = {
        "F32": "float32",
        "F16": "float16",
        "F64": "float64",
        "I8": "int8",
        "I16": "int16",
        "I32": "int32",
        "I64": "int64",
    }
    for kind in gguf.GGMLQuantizationType:
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if kind.name in native:
            writer.add_tensor(f"blk.{kind.name}", numpy.zeros((2, 3, 5), dtype=native[kind.name]))
        else:
            writer.add_tensor(f"blk.{kind.name}", numpy.zeros((3, 2 * block_bytes), dtype=numpy.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = _compare(path)
    assert len(found.tensors) == len(gguf.GGMLQuantizationType)
    assert found.metadata["GGUF.byte_order"] == endian.lower()


@pytest.mark.oracle
def test_agrees_with_the_package_on_split_files(tmp_path: Any) -> None:
    """Each shard of a split model reads as the package reads it, and together they name every tensor once."""
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for number in range(5):
        writer.add_tensor(f"t{number}", numpy.zeros((number + 1, 4), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shards = sorted(tmp_path.glob("m-*.gguf"))
    found = [_compare(shard) for shard in shards]
    assert [shard.metadata["split.no"] for shard in found] == [0, 1, 2]
    assert {shard.metadata["split.count"] for shard in found} == {3}
    assert {shard.metadata["split.tensors.count"] for shard in found} == {5}
    assert sorted(tensor.name for shard in found for tensor in shard.tensors) == [f"t{number}" for number in range(5)]


@pytest.mark.oracle
def test_agrees_with_the_package_beside_a_vocabulary(tmp_path: Any) -> None:
    """With a tokenizer in front, tensors agree with the package and the vocabulary's length is the number of its tokens."""
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    path = tmp_path / "vocab.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token {number}" for number in range(20_000)])
    writer.add_token_scores([0.0] * 20_000)
    writer.add_token_types([1] * 20_000)
    writer.add_tensor("w", numpy.zeros((3, 4), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read(path.read_bytes())
    tensors, _, data_offset = _by_package(path)
    assert [(tensor.name, tensor.dtype, tensor.shape, tensor.stored_bytes) for tensor in found.tensors] == tensors
    assert found.metadata["GGUF.data_offset"] == data_offset
    assert found.metadata["tokenizer.ggml.tokens"] == {"type": "array", "item_type": "string", "length": 20_000}
    assert found.metadata["tokenizer.ggml.scores"] == {"type": "array", "item_type": "float32", "length": 20_000}
