"""One bounded request to the Hub: huggingface_hub's client, auth and retries, plus the limits that its helpers leave open.

What is added, and why (each seen with huggingface_hub 2.4): a 429 is waited out only where the wait is short, because the quota's
window is five minutes; a body is read as a stream and dropped at a limit, because a server that ignores Range would send the whole
weight file; a request has a total deadline, because a byte a second never runs into a read timeout; a body that breaks off is asked
for again, because the library retries only until the answer starts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx2
from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils._http import parse_ratelimit_headers

from hubaudit._version import __version__
from hubaudit.errors import RateLimitError
from hubaudit.hub.failures import explain

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERVER_FAULTS = (408, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for the Hub, in seconds, and how often to ask again."""

    retries: int = 3
    first_wait_seconds: float = 0.5
    answer_seconds: float = 60.0
    rate_limit_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a request is for: the words of its error, should it fail."""

    repo_id: str
    revision: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: ``content`` holds at most the bytes asked for, ``is_whole`` says whether that was all, ``url`` where redirects led."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    is_whole: bool
    url: str


class HubSession:
    """Requests to the Hub that ``HF_ENDPOINT`` names, with the token that huggingface_hub finds, or the one given."""

    def __init__(self, *, token: str | None = None, patience: Patience | None = None) -> None:
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call] # the library warns about each retry; we say once, at the end, what went wrong
        self.patience = patience or Patience()
        self._headers = build_hf_headers(token=token, library_name="hubaudit", library_version=__version__)

    def get(
        self,
        url: str,
        wanted: Wanted,
        *,
        max_bytes: int,
        byte_range: tuple[int, int] | None = None,
        with_token: bool = True,
    ) -> Answer:
        """Ask for ``url``, or for the range (offset, length) of it, and read no more than ``max_bytes`` of the answer.

        Raises:
            HubauditError: every failure, in the words of ``wanted``.
        """
        headers = dict(self._headers) if with_token else {"user-agent": self._headers["user-agent"]}
        if byte_range is not None:
            offset, length = byte_range
            headers |= {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        for attempt in range(self.patience.retries + 1):
            is_last = attempt == self.patience.retries
            try:
                answer = self._stream(url, headers, max_bytes)
            except _BrokenBodyError as broken:
                if is_last:
                    raise _explained(broken.cause, wanted) from None
                time.sleep(self.patience.first_wait_seconds * 2**attempt)
                continue
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                raise _explained(error, wanted) from None
            if answer.status != 429:
                return answer
            time.sleep(self._quota_wait(answer.headers, wanted, is_last=is_last))
        raise AssertionError("the last attempt returns or raises")

    def _stream(self, url: str, headers: dict[str, str], max_bytes: int) -> Answer:
        with http_stream_backoff(
            "GET",
            url,
            headers=headers,
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            max_retries=self.patience.retries,
            base_wait_time=self.patience.first_wait_seconds,
            retry_on_status_codes=_SERVER_FAULTS,
        ) as response:
            if response.status_code >= 400:
                if response.status_code != 429:
                    hf_raise_for_status(_without_body(response))
                return _answer(response, b"", is_whole=True)
            deadline = time.monotonic() + self.patience.answer_seconds
            content, is_whole = _read(response, max_bytes, deadline)
            return _answer(response, content, is_whole=is_whole)

    def _quota_wait(self, headers: Mapping[str, str], wanted: Wanted, *, is_last: bool) -> float:
        """Seconds until the quota is renewed, or an error where that is too long to sit and wait for."""
        limit = parse_ratelimit_headers(headers)
        retry_after = headers.get("Retry-After", "")
        seconds = limit.reset_in_seconds if limit else int(retry_after) if retry_after.isdigit() else None
        if is_last or (seconds is not None and seconds > self.patience.rate_limit_seconds):
            when = f"in {seconds} seconds" if seconds is not None else "in a few minutes"
            raise RateLimitError(
                f"the Hub's rate limit is used up (asking for {wanted.path or 'the repository'} of `{wanted.repo_id}`)",
                hint=f"try again {when}; a login (`hf auth login` or HF_TOKEN) has a higher quota",
            )
        return self.patience.first_wait_seconds if seconds is None else float(seconds)


class _BrokenBodyError(Exception):
    """The answer started well and broke off: worth asking again."""

    def __init__(self, cause: httpx2.HTTPError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _read(response: httpx2.Response, max_bytes: int, deadline: float) -> tuple[bytes, bool]:
    """At most ``max_bytes`` of the body, and whether that is all of it. What breaks it off is wrapped, out of the library's sight."""
    content = bytearray()
    try:
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > max_bytes:
                return bytes(content[:max_bytes]), False
            if time.monotonic() > deadline:
                raise _BrokenBodyError(httpx2.ReadTimeout("the answer came too slowly"))
    except httpx2.HTTPError as error:
        raise _BrokenBodyError(error) from None
    return bytes(content), True


def _without_body(response: httpx2.Response) -> httpx2.Response:
    """The same answer with an empty body: its headers name the error, and an error's body may be endless."""
    kept = {
        name: value
        for name, value in response.headers.items()
        if not name.lower().startswith(("content-", "transfer-"))
    }
    return httpx2.Response(response.status_code, headers=kept, request=response.request)


def _answer(response: httpx2.Response, content: bytes, *, is_whole: bool) -> Answer:
    return Answer(
        status=response.status_code, headers=response.headers, content=content, is_whole=is_whole, url=str(response.url)
    )


def _explained(error: Exception, wanted: Wanted) -> Exception:
    return explain(error, repo_id=wanted.repo_id, revision=wanted.revision, path=wanted.path)


def api_url(repo_id: str, tail: str = "") -> str:
    """The address of a repository in the Hub's API, plus ``tail``."""
    return f"{constants.ENDPOINT}/api/models/{quote(repo_id)}{tail}"


def file_url(repo_id: str, revision: str, path: str) -> str:
    """The address of one file at one revision."""
    return f"{constants.ENDPOINT}/{quote(repo_id)}/resolve/{quote(revision, safe='')}/{quote(path)}"
