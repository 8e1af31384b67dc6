"""What the user named → RepoSnapshot: from the Hub, the cache, a folder, a file or a bundle."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants

from hubaudit.errors import UsageError
from hubaudit.hub.base import with_base
from hubaudit.hub.bundle import read_bundle
from hubaudit.hub.cache import SnapshotCache
from hubaudit.hub.local import read_file, read_folder, read_offline
from hubaudit.hub.online import fetch_from_hub
from hubaudit.hub.reference import parse_reference
from hubaudit.hub.session import HubSession, Patience

if TYPE_CHECKING:
    from hubaudit.hub.reference import Reference
    from hubaudit.types import RepoSnapshot


def fetch(
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: Path | None = None,
    offline: bool = False,
    patience: Patience | None = None,
    file: str | None = None,
) -> RepoSnapshot:
    """Read all that an audit needs of what ``name`` names, and nothing more.

    Args:
        name: a Hub id, ``id@revision``, a huggingface.co URL, a folder, a weight file or a saved bundle.
        revision: a branch, tag or commit of a Hub repository.
        token: a Hub token; by default the one that huggingface_hub finds.
        cache_dir: where snapshots are kept by commit; by default in huggingface_hub's assets cache.
        offline: ask the Hub nothing; ``HF_HUB_OFFLINE`` has the same effect.
        patience: how long to wait for the Hub.
        file: the weights to read, by their path in the repository, instead of those that loaders would choose.

    Raises:
        HubauditError: one of errors.py, with the reason in one line.
    """
    reference = parse_reference(name, revision=revision)
    if reference.kind in ("file", "bundle") and file is not None:
        raise UsageError(f"`{name}` is one {reference.kind}: there is nothing to choose", hint="leave out --file")
    reader = _Reader(
        token=token, patience=patience, cache_dir=cache_dir, offline=offline or constants.is_offline_mode()
    )
    snapshot = reader.read(reference, file or reference.file)
    return snapshot if reference.kind == "bundle" else with_base(snapshot, reader.read)


class _Reader:
    """Reads whatever is named; the Hub's session and cache are made when they are first needed."""

    def __init__(self, *, token: str | None, patience: Patience | None, cache_dir: Path | None, offline: bool) -> None:
        self._token = token
        self._patience = patience
        self._cache_dir = cache_dir
        self._offline = offline

    def read(self, reference: Reference, file: str | None = None) -> RepoSnapshot:
        match reference.kind:
            case "folder":
                return read_folder(reference.name, file=file)
            case "file":
                return read_file(reference.name)
            case "bundle":
                return read_bundle(Path(reference.name))
            case "hub":
                return replace(self._from_hub(reference, file), revision=reference.revision)

    def _from_hub(self, reference: Reference, file: str | None) -> RepoSnapshot:
        cache = SnapshotCache(self._cache_dir)
        if self._offline:
            return read_offline(reference, cache, file=file)
        return fetch_from_hub(reference, self._session, cache, file=file)

    @cached_property
    def _session(self) -> HubSession:
        return HubSession(token=self._token, patience=self._patience)
