"""What of a folder may go into a file that others get: no path of this machine, and nothing from behind a link that leads out of the folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.formats.quoting import shown
from hubaudit.hub.beside import CARD

if TYPE_CHECKING:
    from hubaudit.types import RepoSnapshot


def shareable(snapshot: RepoSnapshot) -> RepoSnapshot:
    """``snapshot`` under the name of its folder instead of the way there; one that was not read from this machine's files stays as it is.

    Git makes links as a stranger's repository has them: a card that is a link to the file with your token would go with the bundle.

    Raises:
        UsageError: a text that the bundle would hold lies behind a link that leads out of the folder.
    """
    base = None if snapshot.base is None else shareable(snapshot.base)
    if snapshot.source != "local":
        return replace(snapshot, base=base)
    place = Path(snapshot.repo_id)
    texts = [*snapshot.configs, *(index.path for index in snapshot.indexes), *([CARD] if snapshot.card else [])]
    for path in texts if place.is_dir() else ():
        if _leads_out(place, path):
            raise UsageError(
                f"{shown(path)} is a link to a file outside of the folder, which the bundle would hold",
                hint="look where it leads; `cp -rL` makes a folder without links",
            )
    return replace(snapshot, repo_id=place.resolve().name or "folder", base=base)


def _leads_out(folder: Path, path: str) -> bool:
    """Whether a file of the folder is really elsewhere. huggingface_hub's cache keeps files beside the folders of its snapshots."""
    home = folder.resolve()
    if home.parent.name == "snapshots":
        home = home.parent.parent
    return not (folder / path).resolve().is_relative_to(home)
