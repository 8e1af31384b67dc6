"""Which model a card is about: what was said, what the card says, the folder it lies in, or where the folder was cloned from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hubaudit.errors import UsageError
from hubaudit.formats.weight_names import weight_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hubaudit.types import Json

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
#: Keys of a card's header that name the repository itself. `base_model` names another.
_KEYS = ("repo_id", "model_id", "hub_model_id", "model_name")
_HOSTS = ("huggingface.co", "hf.co")
_POINTER = b"version https://git-lfs"
_POINTER_BYTES = 1024
_MAX_GIT_CONFIG = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to audit for a card, and who said so: ``argument``, ``marker``, ``header``, ``folder`` or ``remote``."""

    name: str
    said_by: str


def target_of(path: Path, *, repo: str | None, marker: Mapping[str, str], header: Mapping[str, Json]) -> Target:
    """The model that the card at ``path`` is about; the first of these that says it.

    A marker and a header are a stranger's words: they may name a repository of the Hub, and no file of this machine.

    Args:
        path: the card.
        repo: what the user named: anything that an audit takes.
        marker: attributes of the section's opening marker.
        header: the card's YAML header.

    Raises:
        UsageError: nothing says it.
    """
    if repo is not None:
        return Target(name=repo, said_by="argument")
    for name, said_by in ((marker.get("repo"), "marker"), *((header.get(key), "header") for key in _KEYS)):
        if isinstance(name, str) and _ID.fullmatch(name):
            return Target(name=name, said_by=said_by)
    if _has_weights(path.parent):
        return Target(name=str(path.parent), said_by="folder")
    remote = cloned_from(path.parent)
    if remote is not None:
        return Target(name=remote, said_by="remote")
    raise UsageError(
        f"`{path}` does not say which model it is about",
        hint="name it with --repo ORG/NAME, write `model_id: ORG/NAME` into the card's header, or put the card beside the weights",
    )


def cloned_from(folder: Path) -> str | None:
    """The Hub's id of the git repository whose own folder this is, by its remote ``origin``; ``None`` where it comes from elsewhere."""
    try:
        if not (folder / ".git" / "config").is_file():  # a pipe would keep us waiting
            return None
        with (folder / ".git" / "config").open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_GIT_CONFIG)
    except OSError:
        return None
    origin = re.search(r'^\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', text, re.MULTILINE | re.DOTALL)
    return None if origin is None else _id_in(origin[1])


def _id_in(url: str) -> str | None:
    """The id in ``https://huggingface.co/org/name`` or ``git@hf.co:org/name``; datasets and spaces have one more part."""
    scp = re.fullmatch(r"[\w.-]+@([\w.-]+):(.+)", url)
    try:
        host, path = (scp[1], scp[2]) if scp else (urlsplit(url).hostname or "", urlsplit(url).path)
    except ValueError:  # no URL
        return None
    name = path.strip("/").removesuffix(".git")
    return name if host in _HOSTS and _ID.fullmatch(name) else None


def _has_weights(folder: Path) -> bool:
    """Whether weights lie beside the card, and not only what git leaves in their place where LFS did not fetch them."""
    try:
        files = [path for path in folder.iterdir() if weight_name(path.name) is not None and path.is_file()]
    except OSError:
        return False
    return any(not _is_pointer(path) for path in files)


def _is_pointer(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.stat().st_size <= _POINTER_BYTES and file.read(len(_POINTER)) == _POINTER
    except OSError:
        return True
