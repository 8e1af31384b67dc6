"""Outcomes made by hand, for tests that need no audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hubaudit.batch.plan import Item, Outcome

if TYPE_CHECKING:
    from hubaudit.batch.plan import State
    from hubaudit.hub.budget import Quota


def outcome(
    name: str,
    *,
    position: int = 0,
    state: State = "audited",
    document: dict[str, Any] | None = None,
    is_rate_limit: bool = False,
    sent: dict[str, int] | None = None,
    told: tuple[Quota, ...] = (),
) -> Outcome:
    """What became of ``name``."""
    content = document or {"subject": {"repo_id": name, "commit": None}}
    return Outcome(
        item=Item(name=name, position=position),
        state=state,
        document=json.dumps(content).encode(),
        seconds=0.1,
        is_rate_limit=is_rate_limit,
        sent=sent or {},
        told=told,
    )
