"""Snapshots by commit: what was read once of a commit holds for ever."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from secrets import token_hex
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
        noted = self.noted(reference)
        return None if noted is None else self.load(*noted, file)

    def noted(self, reference: Reference, *, max_age_seconds: float | None = None) -> tuple[str, str] | None:
        """The repository's name of then and the commit that ``reference`` meant when the Hub was last asked, if that is recent enough."""
        try:
            note = self._note(reference.name, reference.revision)
            if max_age_seconds is not None and time.time() - note.stat().st_mtime > max_age_seconds:
                return None
            commit, _, repo_id = note.read_text(encoding="utf-8").partition(" ")
        except (OSError, ValueError):
            return None
        return (repo_id, commit) if is_repo_id(repo_id) and COMMIT.fullmatch(commit) else None

    def load_answer(self, repo_id: str, commit: str, key: str) -> bytes | None:
        """What was worked out of that commit before, under a ``key`` that says all it depends on."""
        try:
            return (self._folder_of(repo_id) / f"{commit}-{key}.answer").read_bytes()
        except OSError:
            return None

    def save_answer(self, repo_id: str, commit: str, key: str, answer: bytes) -> None:
        """Keep ``answer``; it appears whole or not at all. A cache that cannot be written is no failure."""
        with suppress(OSError):
            folder = self._folder_of(repo_id)
            draft = folder / f".{token_hex(8)}.part"
            try:
                draft.write_bytes(answer)
                draft.replace(folder / f"{commit}-{key}.answer")
            finally:
                draft.unlink(missing_ok=True)

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
