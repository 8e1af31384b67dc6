"""A repository of the Hub without the Hub → RepoSnapshot: from an earlier audit, or from huggingface_hub's own cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants

from hubaudit.errors import OfflineError
from hubaudit.formats.documents import is_repo_path
from hubaudit.hub.cache import SnapshotCache
from hubaudit.hub.failures import OFFLINE_HINT
from hubaudit.hub.local import read_folder
from hubaudit.hub.reference import COMMIT

if TYPE_CHECKING:
    from hubaudit.hub.reference import Reference
    from hubaudit.types import RepoSnapshot


def read_offline(reference: Reference, cache_dir: Path | None, *, file: str | None = None) -> RepoSnapshot:
    """A Hub repository without the Hub: from an earlier audit, else from the files that huggingface_hub has cached.

    Raises:
        OfflineError: neither holds that repository at that revision.
        CannotAuditError, NotFoundError: ``file`` is no weight file there.
    """
    if (known := SnapshotCache(cache_dir).known(reference, file)) is not None:
        return replace(known, revision=reference.revision)
    home = Path(constants.HF_HUB_CACHE) / f"models--{reference.name.replace('/', '--')}"
    commit = reference.revision if reference.is_pinned else _cached_reference(home, reference.revision or "main")
    folder = home / "snapshots" / str(commit)
    if commit is None or not COMMIT.fullmatch(commit) or not folder.is_dir():
        at = f" at `{reference.revision}`" if reference.revision else ""
        raise OfflineError(
            f"offline, and `{reference.name}`{at} is not in the cache",
            hint=OFFLINE_HINT,
        )
    found = read_folder(str(folder), source="cache", repo_id=reference.name, commit=commit, file=file)
    return replace(found, revision=reference.revision)


def _cached_reference(home: Path, revision: str) -> str | None:
    """What huggingface_hub's cache noted for a branch: its layout is documented as ``refs/<revision>`` → commit."""
    if not is_repo_path(revision):
        return None
    try:
        commit = (home / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return commit
