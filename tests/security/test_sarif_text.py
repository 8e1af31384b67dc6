"""Alerts of code scanning: their text is a stranger's in part, and GitHub shows links in it."""

from __future__ import annotations

import json

from hubaudit.errors import NotFoundError
from hubaudit.report.sarif import to_sarif


def test_a_name_makes_no_link_in_an_alert() -> None:
    """SARIF 2.1.0, 3.11.6: ``[words](address)`` in a plain message is a link; a name that is one loses that."""
    hostile = "org/[your account is blocked](https://example.org/login)"
    document = json.loads(to_sarif([(hostile, NotFoundError("no such model"))]))
    (told,) = document["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert "](" not in told["message"]["text"]
    assert "your account" in told["message"]["text"]
