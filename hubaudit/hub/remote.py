"""A file on the Hub, read by range."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hubaudit.errors import NetworkError
from hubaudit.hub.session import HubSession, Wanted, file_url

if TYPE_CHECKING:
    from hubaudit.hub.answer import Answer

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
#: How much of a file is read and dropped to get at a part of it, where the server does not know ranges.
_SKIP_BYTES = 4 * 1024 * 1024


class RemoteFile:
    """A ``ByteSource`` over one file at one commit. After the first read it knows the size, and asks the storage host directly.

    ``start`` is what was read of it before: an answer that holds its first bytes.
    """

    def __init__(
        self, session: HubSession, wanted: Wanted, *, size_bytes: int | None = None, start: Answer | None = None
    ) -> None:
        if wanted.path is None or wanted.revision is None:
            raise ValueError("a remote file needs a path and a commit")
        self._session = session
        self._wanted = wanted
        self._path = wanted.path
        self._url = file_url(wanted.repo_id, wanted.revision, wanted.path)
        self._with_token = True
        self._size_bytes = size_bytes
        self._start = b"" if start is None else start.content
        if start is not None:
            self._follow(start.url)

    @property
    def path(self) -> str:
        """The file's path in the repository."""
        return self._path

    @property
    def size_bytes(self) -> int | None:
        """The whole file's size; ``None`` before the first read where the listing does not say."""
        return self._size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``; fewer only where the file ends.

        Raises:
            HubauditError: the request failed, or the answer is not the range that was asked for.
        """
        if self._size_bytes is not None:
            length = min(length, self._size_bytes - offset)
        if length <= 0:
            return b""
        if offset + length <= len(self._start):
            return self._start[offset : offset + length]
        answer = self._session.get(
            self._url,
            self._wanted,
            max_bytes=offset + length if offset <= _SKIP_BYTES else length,
            byte_range=(offset, length),
            with_token=self._with_token,
        )
        self._follow(answer.url)
        return (
            self._partial(answer, offset, length) if answer.status == 206 else self._from_start(answer, offset, length)
        )

    def _partial(self, answer: Answer, offset: int, length: int) -> bytes:
        span = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if span is None or int(span[1]) != offset:
            raise self._failure("the server sent another range than the one asked for")
        if span[3] != "*":
            self._learn_size(int(span[3]))
        expected = length if self._size_bytes is None else min(length, self._size_bytes - offset)
        if len(answer.content) < expected:
            raise self._failure(f"the answer is cut off: {len(answer.content)} of {expected} bytes")
        return answer.content[:length]

    def _from_start(self, answer: Answer, offset: int, length: int) -> bytes:
        """What a server sends that does not know ranges: the file from its start, of which we took a bounded part."""
        if "text/html" in answer.headers.get("Content-Type", ""):
            raise self._failure("the server answered with a web page")
        if answer.is_whole:
            self._learn_size(len(answer.content))
        elif len(answer.content) < offset + length:
            raise self._failure("the server ignores range requests, and the part needed is too far into the file")
        else:
            declared = answer.headers.get("Content-Length", "")
            if declared.isdigit():
                self._learn_size(int(declared))
        return answer.content[offset : offset + length]

    def _learn_size(self, size_bytes: int) -> None:
        if self._size_bytes is not None and self._size_bytes != size_bytes:
            raise self._failure(f"the listing says {self._size_bytes} bytes, the server {size_bytes}")
        self._size_bytes = size_bytes

    def _follow(self, url: str) -> None:
        """Go straight to where the redirects led next time, and leave the token at home if that is another host."""
        if urlsplit(url)[:2] != urlsplit(self._url)[:2]:
            self._url, self._with_token = url, False

    def _failure(self, reason: str) -> NetworkError:
        return NetworkError(
            f"`{self._path}` of `{self._wanted.repo_id}`: {reason}",
            hint="try again; if it stays, the mirror or proxy is at fault",
        )
