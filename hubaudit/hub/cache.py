"""Snapshots by commit: what was read once of a commit holds for ever."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

from huggingface_hub import constants
from huggingface_hub.utils import cached_assets_path

from hubaudit.errors import MalformedFileError, NotFoundError
from hubaudit.hub.bundle import read_bundle, write_bundle
from hubaudit.hub.names import is_repo_id
from hubaudit.hub.reference import COMMIT

if TYPE_CHECKING:
    from pathlib import Path

    from hubaudit.hub.reference import Reference
    from hubaudit.types import RepoSnapshot

#: Raised whenever an audit reads more of a repository than before, so that older snapshots are read anew.
READS = "3"


class SnapshotCache:
    """A folder of bundles, one for each commit, in huggingface_hub's assets cache (``HF_ASSETS_CACHE``) unless another is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def known(self, reference: Reference, file: str | None = None) -> RepoSnapshot | None:
        """What was read of ``reference`` before: of its commit, or of what its branch or tag meant when the Hub was last asked."""
        if reference.is_pinned and (snapshot := self.load(reference.name, str(reference.revision), file)) is not None:
            return snapshot
        try:
            commit, _, repo_id = (
                self._note(reference.name, reference.revision).read_text(encoding="utf-8").partition(" ")
            )
        except (OSError, ValueError):
            return None
        return self.load(repo_id, commit, file) if is_repo_id(repo_id) and COMMIT.fullmatch(commit) else None

    def load(self, repo_id: str, commit: str, file: str | None = None) -> RepoSnapshot | None:
        """The snapshot of that commit with the weights that ``file`` chose, or ``None`` where it was not saved, or not by this version."""
        try:
            snapshot = read_bundle(self._folder_of(repo_id) / _entry(commit, file), source="cache")
        except (NotFoundError, MalformedFileError, OSError):
            return None
        return snapshot if (snapshot.repo_id, snapshot.commit) == (repo_id, commit) else None

    def save(self, snapshot: RepoSnapshot, file: str | None = None) -> None:
        """Keep ``snapshot`` under its commit and the ``file`` that chose its weights, without its base, which is kept under its own.

        A cache that cannot be written is no failure of the audit.
        """
        if snapshot.commit is not None:
            kept = replace(snapshot, revision=None, base=None, base_reason=None, base_error=None)
            with suppress(OSError):
                write_bundle(kept, self._folder_of(snapshot.repo_id) / _entry(snapshot.commit, file))

    def remember(self, reference: Reference, repo_id: str, commit: str) -> None:
        """Note what a name meant when the Hub was last asked, for audits offline: the commit, and the repository's name of today."""
        for name in {reference.name, repo_id}:
            with suppress(OSError):
                self._note(name, reference.revision).write_text(f"{commit} {repo_id}", encoding="utf-8")

    def _note(self, name: str, revision: str | None) -> Path:
        return self._folder_of(name) / f"ref-{quote(revision or 'main', safe='')}"

    def _folder_of(self, repo_id: str) -> Path:
        """The folder for one repository; its names are valid ids, which hold no ``--`` and no ``..``.

        Raises:
            OSError: it is not there and cannot be made.
        """
        subfolder = repo_id.replace("/", "--")
        if self._folder is not None:
            (self._folder / subfolder).mkdir(parents=True, exist_ok=True)
            return self._folder / subfolder
        try:
            return cached_assets_path(
                "hubaudit",
                namespace=f"snapshots-{READS}",
                subfolder=subfolder,
                assets_dir=constants.HF_ASSETS_CACHE,
            )
        except ValueError as error:  # a file lies where a folder should
            raise NotADirectoryError(str(error)) from None


def _entry(commit: str, file: str | None) -> str:
    """The name under which a snapshot lies. A path may be longer than a file's name, so its digest stands for it."""
    return f"{commit}.json" if file is None else f"{commit}-{sha256(file.encode()).hexdigest()[:32]}.json"
