"""Zip directories: archives of Python's own zipfile, and archives that lie."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile

import pytest
from byte_sources import BytesSource
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.errors import MalformedFileError
from hubaudit.formats import zip_directory
from hubaudit.formats.zip_directory import NotZipError, ZipDirectory

CONTENTS = {"a/one": b"first", "a/two": b"x" * 300, "a/empty": b"", "a/größe": b"\0" * 1_000}


def archive(
    contents: dict[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"", *, zip64: bool = False
) -> bytes:
    """An archive as the standard library writes it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as writer:
        for name, data in contents.items():
            with writer.open(name, "w", force_zip64=zip64) as entry:
                entry.write(data)
        writer.comment = comment
    return file.getvalue()


def directory(content: bytes) -> ZipDirectory:
    """The directory of these bytes."""
    return ZipDirectory(BytesSource(content, path="x.bin"))


def refused(content: bytes, reason: str) -> MalformedFileError:
    """The error that reading the directory and every entry must raise."""
    with pytest.raises(MalformedFileError) as caught:
        read_all(content)
    assert reason in caught.value.reason
    assert caught.value.path == "x.bin"
    return caught.value


def read_all(content: bytes, limit: int = 10_000) -> dict[str, bytes]:
    """Every entry's contents."""
    found = directory(content)
    return {name: found.read(entry, limit)[0] for name, entry in found.entries.items()}


def as_zip64(content: bytes) -> bytes:
    """The archive with its directory's place moved into a zip64 end record (APPNOTE 4.3.14 to 4.3.16)."""
    end = content.rindex(b"PK\x05\x06")
    count, length, offset = struct.unpack_from("<H2L", content, end + 10)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return content[:end] + record + locator + last


def replaced(content: bytes, signature: bytes, at: int, layout: str, value: int | bytes) -> bytes:
    """The archive with one field of the last structure of this signature overwritten."""
    start = content.rindex(signature) + at
    field = struct.pack("<" + layout, value)
    return content[:start] + field + content[start + len(field) :]


ENTRY, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"a comment", b"PK\x05\x06" * 100, b"c" * 65_535])
@pytest.mark.parametrize("zip64", [False, True])
def test_reads_what_zipfile_wrote(method: int, comment: bytes, zip64: bool) -> None:
    """Names, sizes and contents are those of the archive, whatever its compression, its comment and its record sizes."""
    content = archive(CONTENTS, method, comment, zip64=zip64)
    assert read_all(content) == CONTENTS
    assert {name: entry.size_bytes for name, entry in directory(content).entries.items()} == {
        name: len(data) for name, data in CONTENTS.items()
    }


def test_reads_a_zip64_end_record() -> None:
    """The directory is found through the zip64 records too, when only they say where it is."""
    content = as_zip64(archive(CONTENTS))
    assert zipfile.ZipFile(io.BytesIO(content)).namelist() == list(CONTENTS)
    assert read_all(content) == CONTENTS


def test_reads_sizes_from_the_zip64_extra_field() -> None:
    """An entry of more than 4 GiB has its sizes and its offset in the extra field."""
    huge = 5 * 2**30
    extra = struct.pack("<2H3Q", 1, 24, huge, huge, 2**33)
    entry = struct.pack(
        "<4s6H3L5H2L", ENTRY, 45, 45, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, 1, len(extra), 0, 0, 0, 0, 2**32 - 1
    )
    raw = entry + b"a" + extra
    start = 2**33 + 2**34
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(raw), start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, start + len(raw), 1)
    tail = raw + record + locator + struct.pack("<4s4H2LH", END, 0, 0, 65_535, 65_535, 2**32 - 1, 2**32 - 1, 0)

    class Sparse(BytesSource):
        def read(self, offset: int, length: int) -> bytes:
            self.reads.append((offset, length))
            pad = max(0, start - offset)
            return (bytes(min(pad, length)) + tail[max(0, offset - start) :])[:length]

    source = Sparse(b"", claimed_size=start + len(tail))
    found = ZipDirectory(source).entries["a"]
    assert (found.size_bytes, found.compressed_bytes, found.offset) == (huge, huge, 2**33)


def test_asks_only_for_what_it_needs() -> None:
    """Of a large archive only the tail and the entry's own bytes are read; a directory longer than the tail is read once."""
    content = archive({"a/data.pkl": b"p" * 500, "a/data/0": bytes(1_000_000)})
    source = BytesSource(content, size_known=False)
    found = ZipDirectory(source)
    assert found.read(found.entries["a/data.pkl"], 1_000) == (b"p" * 500, 30 + len("a/data.pkl"))
    assert source.read_bytes <= 4 + 65_557 + 500 + 100
    many = BytesSource(archive({f"a/{'n' * 60}{number}": b"" for number in range(2_000)}))
    assert len(ZipDirectory(many).entries) == 2_000
    assert len(many.reads) == 2


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"\0" * 100, archive(CONTENTS)[:-1], archive(CONTENTS) + b"\0", b"PK\x05\x06" * 20]
)
def test_what_does_not_end_as_an_archive_is_none(content: bytes) -> None:
    """Without an end record that reaches the file's last byte there is no archive."""
    with pytest.raises(NotZipError):
        directory(content)


WHOLE = archive(CONTENTS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (replaced(WHOLE, END, 4, "H", 1), "one part of several"),
        (replaced(WHOLE, END, 8, "H", 3), "one part of several"),
        (replaced(WHOLE, END, 12, "L", 2**31), "runs into its end record"),
        (replaced(WHOLE, END, 16, "L", 2**31), "runs into its end record"),
        (replaced(WHOLE, END, 16, "L", 3), "missing or cut off"),
        (replaced(replaced(WHOLE, END, 8, "H", 3), END, 10, "H", 3), "more than its 3 entries"),
        (replaced(replaced(WHOLE, END, 8, "H", 5), END, 10, "H", 5), "missing or cut off"),
        (replaced(WHOLE, ENTRY, 28, "H", 60_000), "cut off"),
        (replaced(WHOLE, ENTRY, 34, "H", 3), "another part"),
        (replaced(WHOLE, ENTRY, 20, "L", 2**30), "runs into what follows"),
        (replaced(WHOLE, ENTRY, 42, "L", 2**30), "runs into what follows"),
        (replaced(WHOLE, ENTRY, 42, "L", 0), "runs into what follows"),
        (replaced(WHOLE, ENTRY, 20, "L", 0xFFFFFFFF), "zip64 sizes"),
        (replaced(WHOLE, ENTRY, 8, "H", 0x801), "encrypted"),
        (replaced(WHOLE, ENTRY, 10, "H", 99), "compression method 99"),
        (replaced(WHOLE, ENTRY, 10, "H", 8), "decompress"),
        (replaced(WHOLE, ENTRY, 24, "L", 999), "two sizes"),
        (replaced(WHOLE, ENTRY, 24, "L", 99_999), "more than 10000 bytes"),
        (replaced(WHOLE, LOCAL, 0, "4s", b"XXXX"), "local header"),
        (replaced(WHOLE, LOCAL, 26, "H", 60_000), "cut off"),
        (replaced(WHOLE, ENTRY, 46, "2s", b"\xff\xff"), "not UTF-8"),
        (archive({"a/../../etc": b""}), "leaves the archive"),
        (archive({"/etc": b""}), "leaves the archive"),
        (archive({"a\\b": b""}), "leaves the archive"),
        (archive({"aXb": b""}).replace(b"aXb", b"a\0b"), "leaves the archive"),
        (archive({"a": b"1", "b": b"2"}).replace(b"b", b"a"), "two entries 'a'"),
        (as_zip64(WHOLE).replace(b"PK\x06\x06", b"PK\x06\x05"), "no zip64 end record"),
        (replaced(as_zip64(WHOLE), b"PK\x06\x07", 8, "Q", 2**62), "outside the file"),
        (replaced(as_zip64(WHOLE), b"PK\x06\x06", 40, "Q", 2**62), "runs into its end record"),
    ],
)
def test_archives_that_contradict_themselves_are_refused(content: bytes, reason: str) -> None:
    """A directory that disagrees with itself, with the entries or with the file is one error that names a byte."""
    assert refused(content, reason).offset is not None


def test_a_bomb_stops_at_its_declared_size() -> None:
    """An entry that decompresses to more than it declares is refused after its declared size and one byte, and so is one too large."""
    content = archive({"a": b"\0" * 5_000_000}, zipfile.ZIP_DEFLATED)
    assert len(content) < 10_000
    refused(content, "more than 10000 bytes")
    bomb = replaced(content, ENTRY, 24, "L", 100)
    tracemalloc.start()
    try:
        refused(bomb, "is not 100 bytes long when decompressed")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_number_of_entries_and_their_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with more entries or bytes than the bounds is refused before it is read."""
    monkeypatch.setattr(zip_directory, "MAX_ENTRIES", 3)
    refused(WHOLE, "more than this tool reads")
    monkeypatch.setattr(zip_directory, "MAX_ENTRIES", 4)
    monkeypatch.setattr(zip_directory, "MAX_DIRECTORY_BYTES", 100)
    refused(WHOLE, "more than this tool reads")


def test_a_source_of_unknown_size_is_refused() -> None:
    """Where the size stays unknown the end cannot be found, which is said."""

    class Unsized(BytesSource):
        @property
        def size_bytes(self) -> int | None:
            return None

    with pytest.raises(MalformedFileError, match="size is not known"):
        ZipDirectory(Unsized(WHOLE))


@settings(max_examples=300)
@given(
    st.sampled_from([WHOLE, as_zip64(WHOLE), archive(CONTENTS, zipfile.ZIP_DEFLATED)]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 60),
)
def test_damaged_archives_raise_only_the_documented_errors(
    content: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    """Whatever is changed or cut, reading everything gives contents or one of the two errors."""
    damaged = bytearray(content)
    for at, byte in changes:
        damaged[-1 - at % len(damaged)] = byte
    try:
        found = read_all(bytes(damaged[: len(damaged) - cut]))
    except (MalformedFileError, NotZipError):
        return
    assert all(len(data) <= 10_000 for data in found.values())
