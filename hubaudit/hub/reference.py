"""What the user named: a Hub repository, a folder, a weight file or a saved bundle."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

HUB_HOSTS = {"huggingface.co", "www.huggingface.co", "hf.co"}
HINT = "write `org/name`, `org/name@revision`, a huggingface.co URL, or the path of a local folder"
COMMIT = re.compile(r"[0-9a-f]{40}")
"""A commit in full, as the Hub and git write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One subject of an audit. ``name`` is the repository's id, or the path as the user wrote it; ``file`` the weights that its URL leads to."""

    kind: Literal["hub", "folder", "file", "bundle"]
    name: str
    revision: str | None = None
    file: str | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a full commit, which no later push can change."""
        return self.revision is not None and COMMIT.fullmatch(self.revision) is not None
