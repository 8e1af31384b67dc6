"""An in-memory file for parser tests, which remembers what was asked of it."""

from __future__ import annotations


class BytesSource:
    """A ``ByteSource`` over ``content``; ``reads`` lists every ``(offset, length)`` asked for.

    With ``size_known=False`` the size is ``None`` until the first read, as it is for a remote file that no listing named.
    ``claimed_size`` makes it tell another size than it has, as a listing of another revision would.
    """

    def __init__(
        self, content: bytes, *, path: str = "file", size_known: bool = True, claimed_size: int | None = None
    ) -> None:
        self._content = content
        self._path = path
        self._size_known = size_known
        self._size_bytes = len(content) if claimed_size is None else claimed_size
        self.reads: list[tuple[int, int]] = []

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int | None:
        return self._size_bytes if self._size_known else None

    @property
    def read_bytes(self) -> int:
        """All bytes that were handed out, counted once per read."""
        return sum(max(0, min(length, len(self._content) - offset)) for offset, length in self.reads)

    def read(self, offset: int, length: int) -> bytes:
        assert offset >= 0, "a parser asked for a negative offset"
        assert length > 0, "a parser asked for nothing"
        self.reads.append((offset, length))
        self._size_known = True
        return self._content[offset : offset + length]
