"""The user's words → what they name: a path that exists, else a repository of the Hub."""

from __future__ import annotations

from pathlib import Path

from hubaudit.errors import NotFoundError, UsageError
from hubaudit.hub.reference import HINT, HUB_HOSTS, Reference

_BUNDLE_SUFFIXES = (".json", ".json.gz")
_MAX_REVISION_CHARACTERS = 250


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
