"""What the rules on licences share: the file that holds the licence's text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubaudit.types import RepoSnapshot

_NAME = re.compile(r"(licen[cs]e|copying|use_policy|notice|terms)[^/]*", re.IGNORECASE)


def licence_file(snapshot: RepoSnapshot) -> str | None:
    """The first file of the repository's own folder that is named like a licence."""
    return next((file.path for file in snapshot.files if _NAME.fullmatch(file.path)), None)
