"""What a snapshot is assembled from: one repository's files, wherever they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hubaudit.formats.source import ByteSource
    from hubaudit.types import Json, RepoFile


class RepoReader(Protocol):
    """One repository at one commit, or one folder."""

    @property
    def files(self) -> Sequence[RepoFile]:
        """The listing."""

    @property
    def parallel(self) -> int:
        """How many files may be read at once."""

    def read(self, path: str, max_bytes: int) -> bytes:
        """A small file, whole. Raises MalformedFileError where it is larger than ``max_bytes``, NotFoundError where it is not there."""

    def open(self, path: str) -> ByteSource:
        """A file to be read by range."""

    def headers_at_once(self, index: str) -> tuple[Json, Mapping[str, Json]] | None:
        """The index's ``metadata`` and all shard headers, where one request gives them; ``None`` where it does not."""
