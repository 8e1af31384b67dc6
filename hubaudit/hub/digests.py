"""What a listing says that a file's bytes hash to, and whether those that came do."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubaudit.types import Json

_SHA1 = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Digest:
    """The hash of one whole file: git's of a blob, or the sha256 by which LFS keeps it."""

    hexdigest: str
    is_git: bool

    def is_of(self, content: bytes) -> bool:
        """Whether ``content`` is what was hashed. Git hashes a header with the length before the bytes (git-scm.com, Git Objects)."""
        if self.is_git:
            found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
            return found.hexdigest() == self.hexdigest
        return hashlib.sha256(content).hexdigest() == self.hexdigest


def digest_in(sibling: dict[str, Json]) -> Digest | None:
    """The hash in one row of model info with ``blobs=true``; ``None`` where a mirror leaves it out.

    The ``blobId`` of an LFS file is that of its pointer, so there only the sha256 counts.
    """
    lfs = sibling.get("lfs")
    if isinstance(lfs, dict):
        sha256 = lfs.get("sha256")
        return Digest(sha256, False) if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None
    blob = sibling.get("blobId")
    return Digest(blob, True) if isinstance(blob, str) and _SHA1.fullmatch(blob) else None
