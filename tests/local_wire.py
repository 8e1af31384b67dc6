"""A request as it came and an answer as it goes: what routes, faults and servers of the local Hub pass to each other."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_repo import Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came, and what was answered.

    ``path`` and ``query`` are as sent, still encoded; header names are lower case. ``file`` is ``repo_id/path`` of the file
    that a CDN address stands for. ``status`` is 0 where no status line was sent; ``bytes_sent`` counts the body only, as
    handed to the socket: where the client stops reading, somewhat more than it took. ``fault`` is the kind of the rule that
    was applied. ``started_at`` is monotonic seconds.
    """

    method: str
    host: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    file: str = ""
    status: int = 0
    bytes_sent: int = 0
    fault: str | None = None
    started_at: float = 0.0

    @property
    def authorized(self) -> bool:
        """Whether an Authorization header came, right or wrong."""
        return "authorization" in self.headers

    @property
    def token(self) -> str | None:
        return self.headers.get("authorization", "").removeprefix("Bearer ") or None

    @property
    def range(self) -> str | None:
        return self.headers.get("range")

    @property
    def params(self) -> dict[str, list[str]]:
        return parse_qs(self.query, keep_blank_values=True)

    @property
    def label(self) -> str:
        """The decoded path, query and CDN file, to search in."""
        query = f"?{unquote(self.query)}" if self.query else ""
        return f"{unquote(self.path)}{query} {self.file}".rstrip()


@dataclass(slots=True, kw_only=True)
class Answer:
    """A status, headers, and the stretch of a content to send; ``chunked`` sends it without a Content-Length."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    content: Content = b""
    start: int = 0
    stop: int = -1
    chunked: bool = False

    def __post_init__(self) -> None:
        if self.stop < 0:
            self.stop = len(self.content)

    @property
    def length(self) -> int:
        """Bytes of body."""
        return self.stop - self.start


class Refusal(Exception):  # noqa: N818 - an answer on its way out, not a failure of the test server
    """Ends the routing with an answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def refuse(status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None) -> Refusal:
    """An error the way the Hub words it: in the headers, and again in the body."""
    named = {"X-Error-Message": message, **(headers or {})}
    if code is not None:
        named["X-Error-Code"] = code
    answer = json_answer({"error": message}, status=status)
    answer.headers.update(named)
    return Refusal(answer)


def json_answer(value: Any, *, status: int = 200) -> Answer:
    """Any value as compact JSON."""
    return json_text_answer(json.dumps(value, separators=(",", ":")).encode(), status=status)


def json_text_answer(text: bytes, *, status: int = 200) -> Answer:
    """What is JSON already."""
    return Answer(status=status, headers={"Content-Type": "application/json; charset=utf-8"}, content=text)


def redirect_answer(status: int, location: str) -> Answer:
    """A redirect with the line of text that the Hub sends along."""
    words = {302: "Found", 307: "Temporary Redirect"}.get(status, "Redirect")
    headers = {"Content-Type": "text/plain; charset=utf-8", "Location": location, "Vary": "Accept"}
    return Answer(status=status, headers=headers, content=f"{words}. Redirecting to {location}".encode())


_RANGE = re.compile(r"bytes=(?:(\d+)-(\d*)|-(\d+))")


def ranged(answer: Answer, range_header: str | None) -> Answer:
    """The part of a 200 answer that one ``Range: bytes=`` asks for: 206 or 416; several ranges get it all."""
    answer.headers["Accept-Ranges"] = "bytes"
    match = _RANGE.fullmatch(range_header.strip()) if range_header else None
    if match is None:
        return answer
    size = len(answer.content)
    if match[3] is not None:
        start, stop = max(0, size - int(match[3])), size
    else:
        start, stop = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    if start >= size or start >= stop:
        headers = {"Content-Range": f"bytes */{size}", "Content-Type": "application/xml"}
        return Answer(status=416, headers=headers, content=b"<Error><Code>InvalidRange</Code></Error>")
    answer.status, answer.start, answer.stop = 206, start, stop
    answer.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return answer
