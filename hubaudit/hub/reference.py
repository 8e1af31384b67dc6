"""What the user named: a Hub repository, a folder, a weight file or a saved bundle."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from hubaudit.errors import NotFoundError, UsageError
from hubaudit.formats.documents import is_repo_path
from hubaudit.formats.weight_names import weight_name

_HUB_HOSTS = {"huggingface.co", "www.huggingface.co", "hf.co"}
_BUNDLE_SUFFIXES = (".json", ".json.gz")
_HINT = "write `org/name`, `org/name@revision`, a huggingface.co URL, or the path of a local folder"
_MAX_REVISION_CHARACTERS = 250
_OTHER_KINDS = {"datasets", "spaces", "docs", "papers", "collections", "kernels", "buckets"}
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
        raise UsageError("an empty name", hint=_HINT)
    path = None if "://" in text else _existing(text)
    if path is not None:
        return _local(path, text, revision)
    looks_local = text.startswith((".", "/", "~")) or text.endswith((*_BUNDLE_SUFFIXES, ".safetensors", ".gguf"))
    if looks_local and not _is_url(text):
        raise NotFoundError(f"no such file or folder: {ascii(text[:1000])[1:-1]}", hint=_HINT)
    name, inline, file = _split_url(text) if _is_url(text) else (*_split_revision(text), None)
    if revision and inline and revision != inline:
        raise UsageError(
            f"two revisions for `{name}`: `{inline}` and `{revision}`",
            hint="give --revision or name@revision, not both",
        )
    if not is_repo_id(name):
        raise UsageError(f"not a repository id: {name[:200]!a}", hint=_HINT)
    revision = revision or inline
    if revision is not None and not (revision.isprintable() and len(revision) <= _MAX_REVISION_CHARACTERS):
        raise UsageError(f"not a revision: {revision[:200]!a}", hint="give a branch, a tag or a commit")
    return Reference(kind="hub", name=name, revision=revision, file=file)


def is_repo_id(text: str) -> bool:
    """Whether ``text`` can be a repository's id, and so part of addresses and of folder names."""
    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


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
        raise UsageError(f"`{text}` is neither a file nor a folder", hint=_HINT)
    if path.name.endswith(_BUNDLE_SUFFIXES):
        return Reference(kind="bundle", name=str(path))
    return Reference(kind="file", name=str(path))


def _is_url(text: str) -> bool:
    host = text.partition("/")[0].lower()
    return "://" in text or host in _HUB_HOSTS


def _split_revision(text: str) -> tuple[str, str | None]:
    name, at, revision = text.partition("@")
    if at and not revision:
        raise UsageError(f"no revision after `@` in {text[:200]!a}", hint="give a branch, a tag or a commit")
    return name, revision or None


def _split_url(text: str) -> tuple[str, str | None, str | None]:
    if text.startswith("hf://"):
        return (*_split_revision(text.removeprefix("hf://").removeprefix("models/")), None)
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
    except ValueError:
        raise UsageError(f"not a URL: {text[:200]!a}", hint=_HINT) from None
    endpoint = urlsplit(constants.ENDPOINT)
    known = parts.netloc.lower() in _HUB_HOSTS or (
        parts.netloc == endpoint.netloc and parts.scheme in ("http", "https")
    )
    if not known:
        raise UsageError(
            f"not a Hugging Face URL: {text[:200]!a}",
            hint="for a mirror, set HF_ENDPOINT and give the repository id",
        )
    path = parts.path
    if parts.netloc == endpoint.netloc:
        path = path.removeprefix(endpoint.path)
    pieces = [unquote(piece) for piece in path.split("/") if piece]
    if pieces[:1] == ["models"]:
        pieces = pieces[1:]
    if not pieces or pieces[0] in _OTHER_KINDS:
        raise UsageError(f"not the URL of a model: {text[:200]!a}", hint=_HINT)
    for at, piece in enumerate(pieces):
        if piece in ("tree", "blob", "resolve", "raw", "commit") and at in (1, 2):
            revision = _revision_of(pieces[at + 1 :])
            path = "/".join(pieces[at + 1 :]).removeprefix(f"{revision}/")
            is_file = piece in ("blob", "resolve", "raw") and is_repo_path(path) and weight_name(path) is not None
            return "/".join(pieces[:at]), revision, path if is_file else None
    return "/".join(pieces[:2]), None, None


def _revision_of(pieces: list[str]) -> str | None:
    """The revision that a URL's tail starts with; ``refs/pr/1`` is the only kind of name with slashes that the Hub makes."""
    if pieces[:1] == ["refs"]:
        return "/".join(pieces[:3])
    return pieces[0] if pieces else None
