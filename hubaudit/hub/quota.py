"""How long a server asks to be left alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from huggingface_hub.utils import parse_ratelimit_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = re.compile(r"\s*([0-9]{1,9})\s*")


def asked_wait_seconds(status: int, headers: Mapping[str, str]) -> int | None:
    """Seconds until the quota is renewed (``RateLimit`` of a 429) or the server is back (``Retry-After``); ``None`` where it does not say.

    The Hub sends ``RateLimit`` with every answer, so it counts only where it says that nothing remains.
    """
    if status == 429:
        try:
            limit = parse_ratelimit_headers(headers)
        except ValueError:  # a number of thousands of digits
            limit = None
        if limit is not None and limit.remaining == 0:
            return limit.reset_in_seconds
    retry_after = _SECONDS.fullmatch(headers.get("Retry-After", ""))
    return int(retry_after[1]) if retry_after else None
