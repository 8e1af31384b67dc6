"""What the user named: a Hub repository, a folder, a weight file or a saved bundle."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubaudit.errors import NotFoundError, UsageError

HUB_HOSTS = {"huggingface.co", "www.huggingface.co", "hf.co"}
_BUNDLE_SUFFIXES = (".json", ".json.gz")
HINT = "write `org/name`, `org/name@revision`, a huggingface.co URL, or the path of a local folder"
_MAX_REVISION_CHARACTERS = 250
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


def parse_reference(text: str, *, revision: str | None = None) -> Reference:
    """Understand ``org/name``, ``name``, ``org/name@revision``, a huggingface.co or hf.co URL, a folder, a weight file or a bundle.

    A path that exists wins over a repository of the same name, as it does in transformers.

    Raises:
        NotFoundError: it looks like a path, and nothing is there.
        UsageError: it can be none of these, or names two different revisions.
    """
    if not text.strip():
        raise UsageError("an empty name", hint=HINT)
    path = None if "://" in text else _existing(text)
    if path is not None:
        return _local(path, text, revision)
    looks_local = text.startswith((".", "/", "~")) or text.endswith((*_BUNDLE_SUFFIXES, ".safetensors", ".gguf"))
    if looks_local and not _is_url(text):
        raise NotFoundError(f"no such file or folder: {ascii(text[:1000])[1:-1]}", hint=HINT)
    from hubaudit.hub.names import is_repo_id, split_revision, split_url  # and with them huggingface_hub

    name, inline, file = split_url(text) if _is_url(text) else (*split_revision(text), None)
    if revision and inline and revision != inline:
        raise UsageError(
            f"two revisions for `{name}`: `{inline}` and `{revision}`",
            hint="give --revision or name@revision, not both",
        )
    if not is_repo_id(name):
        raise UsageError(f"not a repository id: {name[:200]!a}", hint=HINT)
    revision = revision or inline
    if revision is not None and not (revision.isprintable() and len(revision) <= _MAX_REVISION_CHARACTERS):
        raise UsageError(f"not a revision: {revision[:200]!a}", hint="give a branch, a tag or a commit")
    return Reference(kind="hub", name=name, revision=revision, file=file)


def _existing(text: str) -> Path | None:
    """The path that ``text`` is, where something lies there."""
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a null byte in it, the home of nobody
        return None


def _local(path: Path, text: str, revision: str | None) -> Reference:
    if revision is not None:
        raise UsageError(f"`{text}` is local and has no revisions", hint="leave out --revision")
    if path.is_dir():
        return Reference(kind="folder", name=str(path))
    if not path.is_file():
        raise UsageError(f"`{text}` is neither a file nor a folder", hint=HINT)
    if path.name.endswith(_BUNDLE_SUFFIXES):
        return Reference(kind="bundle", name=str(path))
    return Reference(kind="file", name=str(path))


def _is_url(text: str) -> bool:
    host = text.partition("/")[0].lower()
    return "://" in text or host in HUB_HOSTS
