"""Snapshots by commit: what was read once of a commit holds for ever."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from huggingface_hub.utils import cached_assets_path

from hubaudit.errors import MalformedFileError, NotFoundError
from hubaudit.hub.bundle import read_bundle, write_bundle

if TYPE_CHECKING:
    from pathlib import Path

    from hubaudit.types import RepoSnapshot

#: Raised whenever an audit reads more of a repository than before, so that older snapshots are read anew.
READS = "1"


class SnapshotCache:
    """A folder of bundles, one for each commit, in huggingface_hub's assets cache (``HF_ASSETS_CACHE``) unless another is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def load(self, repo_id: str, commit: str) -> RepoSnapshot | None:
        """The snapshot of that commit, or ``None`` where it was not saved, or not by this version."""
        try:
            snapshot = read_bundle(self._folder_of(repo_id) / f"{commit}.json", source="cache")
        except (NotFoundError, MalformedFileError, OSError):
            return None
        return snapshot if (snapshot.repo_id, snapshot.commit) == (repo_id, commit) else None

    def save(self, snapshot: RepoSnapshot) -> None:
        """Keep ``snapshot`` under its commit. A cache that cannot be written is no failure of the audit."""
        if snapshot.commit is not None:
            with suppress(OSError):
                write_bundle(
                    replace(snapshot, revision=None), self._folder_of(snapshot.repo_id) / f"{snapshot.commit}.json"
                )

    def remember(self, repo_id: str, revision: str | None, commit: str) -> None:
        """Note what a branch or tag meant when the Hub was last asked, for audits offline."""
        with suppress(OSError):
            self._reference(repo_id, revision).write_text(commit, encoding="ascii")

    def commit_of(self, repo_id: str, revision: str | None) -> str | None:
        """The commit that a branch or tag meant when the Hub was last asked; ``None`` where it never was."""
        try:
            return self._reference(repo_id, revision).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None

    def _reference(self, repo_id: str, revision: str | None) -> Path:
        return self._folder_of(repo_id) / f"ref-{quote(revision or 'main', safe='')}"

    def _folder_of(self, repo_id: str) -> Path:
        subfolder = repo_id.replace("/", "--")
        if self._folder is None:
            return cached_assets_path("hubaudit", namespace=f"snapshots-{READS}", subfolder=subfolder)
        (self._folder / subfolder).mkdir(parents=True, exist_ok=True)
        return self._folder / subfolder
