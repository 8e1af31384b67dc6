"""The first question about a repository: what its revision means now, and what lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from hubaudit.hub.session import Wanted, api_url

if TYPE_CHECKING:
    from hubaudit.hub.answer import Answer
    from hubaudit.hub.reference import Reference
    from hubaudit.hub.session import HubSession

MAX_JSON_BYTES = 64_000_000
"""More than the Hub's longest listing, and less than memory can hold."""


def ask_about(reference: Reference, session: HubSession) -> Answer:
    """The Hub's word on ``reference`` as it came; with ``blobs=true`` it also tells every file's size.

    Raises:
        HubauditError: there is no such repository or revision, or the network fails.
    """
    tail = f"/revision/{quote(reference.revision, safe='')}" if reference.revision else ""
    wanted = Wanted(repo_id=reference.name, revision=reference.revision)
    return session.get(api_url(reference.name, f"{tail}?blobs=true"), wanted, max_bytes=MAX_JSON_BYTES)
