"""What a parser reads from: a file's bytes by range, wherever the file lies."""

from __future__ import annotations

from typing import Protocol


class ByteSource(Protocol):
    """A file that can be read by range. ``hub`` makes these for remote and local files; parsers never open anything themselves."""

    @property
    def path(self) -> str:
        """The file's path in its repository, for messages."""

    @property
    def size_bytes(self) -> int | None:
        """The whole file's size; may be ``None`` before the first read of a remote file."""

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``; fewer only where the file ends. ``length`` must be what the parser needs, no more."""
