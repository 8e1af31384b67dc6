"""What the user named → RepoSnapshot: from the Hub, the cache, a folder, a file or a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants

from hubaudit.hub.bundle import read_bundle
from hubaudit.hub.cache import SnapshotCache
from hubaudit.hub.local import read_file, read_folder, read_offline
from hubaudit.hub.online import fetch_from_hub
from hubaudit.hub.reference import parse_reference
from hubaudit.hub.session import HubSession, Patience

if TYPE_CHECKING:
    from hubaudit.types import RepoSnapshot


def fetch(
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: Path | None = None,
    offline: bool = False,
    patience: Patience | None = None,
) -> RepoSnapshot:
    """Read all that an audit needs of what ``name`` names, and nothing more.

    Args:
        name: a Hub id, ``id@revision``, a huggingface.co URL, a folder, a ``.safetensors`` file or a saved bundle.
        revision: a branch, tag or commit of a Hub repository.
        token: a Hub token; by default the one that huggingface_hub finds.
        cache_dir: where snapshots are kept by commit; by default in huggingface_hub's assets cache.
        offline: ask the Hub nothing; ``HF_HUB_OFFLINE`` has the same effect.
        patience: how long to wait for the Hub.

    Raises:
        HubauditError: one of errors.py, with the reason in one line.
    """
    reference = parse_reference(name, revision=revision)
    match reference.kind:
        case "folder":
            return read_folder(reference.name)
        case "file":
            return read_file(reference.name)
        case "bundle":
            return read_bundle(Path(reference.name))
        case "hub":
            cache = SnapshotCache(cache_dir)
            if offline or constants.is_offline_mode():
                snapshot = read_offline(reference, cache)
            else:
                snapshot = fetch_from_hub(reference, HubSession(token=token, patience=patience), cache)
            return replace(snapshot, revision=reference.revision)
