"""Zip directories read by range, and single entries with them: what an archive holds, without its contents.

The format: PKWARE APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16. The standard library's ``zipfile`` reads the same, but it renames entries,
warns about some hostile ones, keeps no bound on their number, and cannot say at which byte an archive breaks.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.errors import MalformedFileError
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.formats.source import ByteSource

MAX_DIRECTORY_BYTES = 32 * 2**20
MAX_ENTRIES = 200_000
STORED, DEFLATED = 0, 8

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_TAIL_BYTES = _END.size + 65_535  # the end record and its longest comment
_UTF_8, _ENCRYPTED = 0x800, 0x1
_NOT_HERE_16, _NOT_HERE_32 = 0xFFFF, 0xFFFF_FFFF  # "see the zip64 record"


class NotZipError(ValueError):
    """The file does not end as a zip archive does."""


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """One entry as the directory declares it. ``end`` is where the next entry, or the directory, starts: the data ends before it."""

    name: str
    method: int
    compressed_bytes: int
    size_bytes: int
    offset: int
    encrypted: bool
    end: int


class ZipDirectory:
    """The entries of one archive by name, checked: no name twice, none that leaves the archive, none over another."""

    def __init__(self, source: ByteSource) -> None:
        """Read the directory: the file's last 64 KiB, and what of the directory lies before them.

        Raises:
            NotZipError: there is no end record.
            MalformedFileError: the directory breaks the format's rules or the bounds above.
        """
        self._source = source
        size_bytes = _size_of(source)
        self._tail_offset = max(0, size_bytes - _TAIL_BYTES)
        self._tail = self._source.read(self._tail_offset, size_bytes - self._tail_offset) if size_bytes else b""
        offset, length, count = self._end_record()
        self.entries: Mapping[str, ZipEntry] = self._entries(offset, length, count)

    def read(self, entry: ZipEntry, limit: int) -> tuple[bytes, int | None]:
        """An entry's contents, at most ``limit`` bytes, and where in the file they lie (``None`` where they are compressed).

        The check sum is not looked at: torch.save can be told to leave it out, and torch.load does not check it.

        Raises:
            MalformedFileError: the entry is larger, encrypted, compressed by an unknown method, cut off, or not what the directory says.
        """
        if entry.size_bytes > limit or entry.compressed_bytes > limit:
            raise self._broken(f"entry {shown(entry.name)} has more than {limit} bytes", entry.offset)
        if entry.encrypted or entry.method not in (STORED, DEFLATED):
            raise self._broken(
                f"entry {shown(entry.name)} is encrypted or of compression method {entry.method}", entry.offset
            )
        longest = _LOCAL.size + 2 * 65_535 + entry.compressed_bytes
        raw = self._range(entry.offset, min(longest, entry.end - entry.offset))
        start = self._data_start(entry, raw)
        data = raw[start : start + entry.compressed_bytes]
        if len(data) < entry.compressed_bytes:
            raise self._broken(f"entry {shown(entry.name)} is cut off", entry.offset)
        if entry.method == STORED:
            if entry.size_bytes != entry.compressed_bytes:
                raise self._broken(f"entry {shown(entry.name)} is stored but has two sizes", entry.offset)
            return data, entry.offset + start
        return self._inflate(entry, data), None

    def _broken(self, reason: str, offset: int) -> MalformedFileError:
        return MalformedFileError(self._source.path, reason, offset=offset)

    def _range(self, offset: int, length: int) -> bytes:
        """Bytes of the file, from the tail where they lie in it."""
        if offset >= self._tail_offset:
            return self._tail[offset - self._tail_offset :][:length]
        return self._source.read(offset, length) if length > 0 else b""

    def _data_start(self, entry: ZipEntry, raw: bytes) -> int:
        if len(raw) < _LOCAL.size:
            raise self._broken(f"entry {shown(entry.name)} is cut off", entry.offset)
        signature, *_, name_bytes, extra_bytes = _LOCAL.unpack_from(raw)
        if signature != b"PK\x03\x04":
            raise self._broken(f"entry {shown(entry.name)} does not start with a local header", entry.offset)
        return int(_LOCAL.size + name_bytes + extra_bytes)

    def _inflate(self, entry: ZipEntry, data: bytes) -> bytes:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            contents = stream.decompress(data, entry.size_bytes + 1)
        except zlib.error as error:
            raise self._broken(f"entry {shown(entry.name)} does not decompress: {error}", entry.offset) from None
        if len(contents) != entry.size_bytes:
            raise self._broken(
                f"entry {shown(entry.name)} is not {entry.size_bytes} bytes long when decompressed", entry.offset
            )
        return contents

    def _end_record(self) -> tuple[int, int, int]:
        """Offset and length in bytes of the directory, and its number of entries."""
        at = self._tail.rfind(b"PK\x05\x06")
        while at >= 0:
            if at + _END.size <= len(self._tail):
                _, disk, first_disk, here, count, length, offset, comment_bytes = _END.unpack_from(self._tail, at)
                if at + _END.size + comment_bytes == len(self._tail):
                    break
            at = self._tail.rfind(b"PK\x05\x06", 0, at + 3)
        else:
            raise NotZipError
        end = self._tail_offset + at
        locator = self._range(end - _LOCATOR.size, _LOCATOR.size) if end >= _LOCATOR.size else b""
        if locator.startswith(b"PK\x06\x07"):
            end, disk, first_disk, here, count, length, offset = self._end_record_64(locator, end)
        if disk or first_disk or here != count:
            raise self._broken("the archive is one part of several", end)
        if offset + length > end:
            raise self._broken(f"the archive's directory of {length} bytes at {offset} runs into its end record", end)
        if length > MAX_DIRECTORY_BYTES or count > MAX_ENTRIES:
            raise self._broken(f"the archive has {count} entries in {length} bytes, more than this tool reads", end)
        return offset, length, count

    def _end_record_64(self, locator: bytes, locator_end: int) -> tuple[int, ...]:
        _, _, end, _ = _LOCATOR.unpack(locator)
        if end + _END_64.size + _LOCATOR.size > locator_end:
            raise self._broken("the zip64 end record lies outside the file", locator_end - _LOCATOR.size)
        raw = self._range(end, _END_64.size)
        if len(raw) < _END_64.size or not raw.startswith(b"PK\x06\x06"):
            raise self._broken("there is no zip64 end record where its locator says", end)
        _, _, _, _, disk, first_disk, here, count, length, offset = _END_64.unpack(raw)
        return end, disk, first_disk, here, count, length, offset

    def _entries(self, offset: int, length: int, count: int) -> dict[str, ZipEntry]:
        raw = self._range(offset, length)
        if len(raw) < length:
            raise self._broken("the archive's directory is cut off", offset + len(raw))
        found: list[ZipEntry] = []
        at = 0
        for _ in range(count):
            entry, read = self._entry(raw, at, offset + at)
            found.append(entry)
            at += read
        if at != length:
            raise self._broken(f"the archive's directory holds more than its {count} entries", offset + at)
        entries: dict[str, ZipEntry] = {}
        for entry in self._bounded(found, offset):
            if entry.name in entries:
                raise self._broken(f"the archive has two entries {shown(entry.name)}", entry.offset)
            entries[entry.name] = entry
        return entries

    def _entry(self, raw: bytes, at: int, offset: int) -> tuple[ZipEntry, int]:
        """One entry of the directory, and its length there."""
        if len(raw) - at < _ENTRY.size or raw[at : at + 4] != b"PK\x01\x02":
            raise self._broken("an entry of the archive's directory is missing or cut off", offset)
        fields = _ENTRY.unpack_from(raw, at)
        flags, method, compressed, size = fields[3], fields[4], fields[8], fields[9]
        name_bytes, extra_bytes, comment_bytes, disk, start = *fields[10:14], fields[16]
        read = _ENTRY.size + name_bytes + extra_bytes + comment_bytes
        if len(raw) - at < read:
            raise self._broken("an entry of the archive's directory is cut off", offset)
        name_at = at + _ENTRY.size
        name = self._name(raw[name_at : name_at + name_bytes], flags, offset)
        extra = raw[name_at + name_bytes : name_at + name_bytes + extra_bytes]
        size, compressed, start = self._zip64_values(extra, (size, compressed, start), offset)
        if disk not in (0, _NOT_HERE_16):
            raise self._broken(f"entry {shown(name)} lies in another part of the archive", offset)
        return ZipEntry(name, method, compressed, size, start, bool(flags & _ENCRYPTED), end=0), read

    def _zip64_values(self, extra: bytes, values: tuple[int, int, int], offset: int) -> list[int]:
        """Size, compressed size and offset, those that do not fit in 32 bits taken from the zip64 extra field."""
        wide = b""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                wide = extra[at + 4 : at + 4 + length]
                break
            at += 4 + length
        found = []
        for value in values:
            if value != _NOT_HERE_32:
                found.append(value)
                continue
            if len(wide) < 8:
                raise self._broken("an entry of the archive's directory lacks its zip64 sizes", offset)
            found.append(int.from_bytes(wide[:8], "little"))
            wide = wide[8:]
        return found

    def _name(self, raw: bytes, flags: int, offset: int) -> str:
        try:
            name = raw.decode("utf-8" if flags & _UTF_8 else "cp437")
        except UnicodeDecodeError:
            raise self._broken("an entry's name is not UTF-8", offset) from None
        parts = name.split("/")
        if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts:
            raise self._broken(f"the entry name {shown(name)} leaves the archive", offset)
        return name

    def _bounded(self, found: list[ZipEntry], directory_offset: int) -> list[ZipEntry]:
        """The entries in file order, each with its end, none of them over the next one or the directory."""
        found.sort(key=lambda entry: entry.offset)
        ends = [entry.offset for entry in found[1:]] + [directory_offset]
        bounded = []
        for entry, end in zip(found, ends, strict=False):
            if entry.offset + _LOCAL.size + len(entry.name) + entry.compressed_bytes > end:
                raise self._broken(f"entry {shown(entry.name)} runs into what follows it", entry.offset)
            bounded.append(
                ZipEntry(
                    entry.name,
                    entry.method,
                    entry.compressed_bytes,
                    entry.size_bytes,
                    entry.offset,
                    entry.encrypted,
                    end,
                )
            )
        return bounded


def _size_of(source: ByteSource) -> int:
    if source.size_bytes is None:
        source.read(0, 4)
    if source.size_bytes is None:
        raise MalformedFileError(
            source.path, "its size is not known, so its directory, which lies at the end, cannot be found"
        )
    return source.size_bytes
