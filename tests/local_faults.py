"""What can go wrong between a client and the Hub, as rules that the local Hub applies to the requests they match."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_repo import Content
    from local_wire import Request

FaultKind = Literal[
    "status",  # answer `status`, with an HTML body (or JSON); a 429 says that the quota resets in `reset_seconds`
    "reset",  # the connection is reset (RST) instead of an answer
    "close",  # the connection is closed instead of an answer
    "timeout",  # nothing for `seconds`, then the answer
    "truncate",  # Content-Length says the whole body, `keep` bytes of it (half by default) come, then the end
    "wrong_length",  # Content-Length says `length` (half by default) of a body that comes whole
    "ignore_range",  # 200 and the whole file for a request of a range
    "wrong_content",  # `status` (200 by default) and `body`, an HTML page by default; with 206, as the range asked for
    "wrong_content_range",  # 206 whose Content-Range is `content_range`, by default of other bytes than those asked for
    "garbled",  # as many other bytes
    "altered",  # the body with its first digit above 0 replaced by another: still JSON where it was
    "slow",  # the body comes at `bytes_per_second`
    "headers",  # the answer with `headers` set, or taken away where None
    "changed_commit",  # `main` moves to a new commit of `files` (the same by default) just before the answer
    "endless_redirects",  # 307 to the same path, again and again
    "redirect_to",  # 302 to `location`
]

HTML_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Oops</title></head><body><h1>Something went wrong</h1></body></html>\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, with the requests that ``match``, after the first ``after`` of them, ``times`` times.

    ``match`` is a regular expression searched in the decoded path and query (and, for the CDN, in ``repo_id/path`` of
    the file), or a predicate of the ``Request``. ``host`` and ``method`` narrow it. ``times=None`` is for ever. The first
    rule that applies to a request is the only one that does.
    """

    kind: FaultKind
    match: str | Callable[[Request], bool] = ""
    times: int | None = None
    after: int = 0
    host: Literal["hub", "cdn"] | None = None
    method: str | None = None
    status: int | None = None
    reset_seconds: int = 1
    html: bool = True
    headers: Mapping[str, str | None] = field(default_factory=dict)
    seconds: float = 60.0
    bytes_per_second: int = 1
    keep: int | None = None
    length: int | None = None
    body: bytes = HTML_PAGE
    content_range: str | None = None
    location: str = ""
    files: Mapping[str, Content | str] | None = None

    def matches(self, request: Request) -> bool:
        """Whether the rule speaks of this request, its counts left aside."""
        if self.host not in (None, request.host) or self.method not in (None, request.method):
            return False
        if callable(self.match):
            return self.match(request)
        return re.search(self.match, request.label) is not None


class FaultRules:
    """The rules of one local Hub, and how often each has matched and been applied. Callers hold the Hub's lock."""

    def __init__(self) -> None:
        self.rules: list[Fault] = []
        self._known: list[Fault] = []  # keeps every rule alive, for the counts are kept by identity
        self._matched: dict[int, int] = {}
        self._applied: dict[int, int] = {}

    def add(self, fault: Fault) -> Fault:
        """Adds a rule behind those already there."""
        self.rules.append(fault)
        self._known.append(fault)
        return fault

    def clear(self) -> None:
        """Forgets all rules: from now on everything goes well."""
        self.rules.clear()

    def applied(self, fault: Fault) -> int:
        """How many requests the rule has been applied to."""
        return self._applied.get(id(fault), 0)

    def take(self, request: Request) -> Fault | None:
        """The rule to apply to this request, counted as applied."""
        for fault in self.rules:
            if not fault.matches(request):
                continue
            key = id(fault)
            self._matched[key] = self._matched.get(key, 0) + 1
            done = self._applied.get(key, 0)
            if self._matched[key] > fault.after and (fault.times is None or done < fault.times):
                self._applied[key] = done + 1
                return fault
        return None
