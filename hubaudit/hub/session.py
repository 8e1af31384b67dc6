"""One bounded question to the Hub: huggingface_hub's connections, headers and token, with the limits that its helpers leave open.

What is added to its own retry loop, and why (each seen with huggingface_hub 2.4): a 429 or a Retry-After is waited out only where the
wait is short, because the quota's window is five minutes; a body, a redirect's too, is read as a stream and dropped at a limit, because
a server that ignores Range would send the whole weight file; a question has a total deadline, because a byte a second never runs into a
read timeout, and what came moves it a little, because 100 MB may take longer; a body that breaks off is asked for again, because the library
retries only until the answer starts; and a refused connection does not close the connections of the requests beside it.
"""

from __future__ import annotations

import platform
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import httpcore2  # noqa: F401 - the first client would import it, where nothing but the certificates should be read
import httpx2
from huggingface_hub import __version__ as library_version
from huggingface_hub import constants
from huggingface_hub.utils import get_session

from hubaudit._version import __version__
from hubaudit.errors import AccessError, UsageError
from hubaudit.hub.answer import Answer
from hubaudit.hub.deadline import Deadline, call_within
from hubaudit.hub.failures import explain
from hubaudit.hub.quota import asked_wait_seconds
from hubaudit.hub.token import find_token

if TYPE_CHECKING:
    from hubaudit.hub.budget import Budget

_PASSING_STATUSES = (408, 429, 500, 502, 503, 504)
_PASSING_ERRORS = (
    httpx2.TimeoutException,
    httpx2.NetworkError,
    httpx2.RemoteProtocolError,
    httpx2.ProxyError,
    httpx2.DecodingError,
)
_MAX_REDIRECTS = 20
_MAX_REDIRECT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for the Hub, in seconds, and how often to ask again.

    ``answer_seconds`` bounds one question, its redirects and repetitions included; a large answer has more, by the bytes that came
    (`hub.deadline.Deadline`). Waits between repetitions come on top: those that the Hub asks for, if they are no longer than
    ``rate_limit_seconds``, else ``first_wait_seconds`` and twice as long each time.
    """

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


class HubSession:
    """Questions to the Hub that ``HF_ENDPOINT`` names, with the token that huggingface_hub finds, or the one given."""

    def __init__(
        self, *, token: str | None = None, patience: Patience | None = None, budget: Budget | None = None
    ) -> None:
        if urlsplit(constants.ENDPOINT).scheme not in ("http", "https") or not urlsplit(constants.ENDPOINT).hostname:
            raise UsageError(
                f"HF_ENDPOINT is not the address of a Hub: `{constants.ENDPOINT.rpartition('@')[2]}`",  # no password
                hint="write it with its scheme, as https://huggingface.co",
            )
        self.patience = patience or Patience()
        self._budget = budget
        self._headers = _headers(token)
        _client()  # made before the first question, so that a wrong proxy is told at once

    def get(
        self,
        url: str,
        wanted: Wanted,
        *,
        max_bytes: int,
        byte_range: tuple[int, int] | None = None,
        with_token: bool = True,
        retries: int | None = None,
    ) -> Answer:
        """Ask for ``url``, or for the range (offset, length) of it, and read no more than ``max_bytes`` of the answer.

        ``retries`` is for a question that there is another way to ask; by default, as often as ``patience`` says.

        Raises:
            HubauditError: every failure, in the words of ``wanted``.
        """
        headers = dict(self._headers) if with_token else {"user-agent": self._headers["user-agent"]}
        if byte_range is not None:
            offset, length = byte_range
            headers |= {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        retries = self.patience.retries if retries is None else retries
        deadline = Deadline(self.patience.answer_seconds)
        attempt = 0
        while True:
            deadline.waited(0.0 if self._budget is None else self._budget.take(url))
            try:
                outcome = _attempt(url, headers, max_bytes, deadline, self._budget)
            finally:
                if self._budget is not None:
                    self._budget.give_back(url)
            if isinstance(outcome, Answer) and outcome.is_good:
                return outcome
            wait = self._wait_after(outcome, attempt)
            if wait is None or attempt >= retries or deadline.seconds_left <= 0:
                raise explain(outcome, repo_id=wanted.repo_id, revision=wanted.revision, path=wanted.path)
            time.sleep(wait)
            deadline.waited(wait)
            attempt += 1

    def _wait_after(self, outcome: Answer | Exception, attempt: int) -> float | None:
        """Seconds after which a failed question is worth asking again; ``None`` where it is not, or not soon."""
        backoff = self.patience.first_wait_seconds * float(2**attempt)
        if isinstance(outcome, Exception):
            return backoff if isinstance(outcome, _PASSING_ERRORS) else None
        if outcome.status not in _PASSING_STATUSES:
            return None
        asked = asked_wait_seconds(outcome.status, outcome.headers)
        if outcome.status == 429 and self._budget is not None:
            return 0.0  # the budget has learnt it, and knows when the next may go
        if asked is None:
            return backoff
        return max(float(asked), backoff) if asked <= self.patience.rate_limit_seconds else None


def _attempt(
    url: str, headers: dict[str, str], max_bytes: int, deadline: Deadline, budget: Budget | None
) -> Answer | Exception:
    """One question, once: the answer, or what kept it from coming."""
    try:
        return call_within(deadline, partial(_ask, url, headers, max_bytes, deadline, budget))
    except TimeoutError:
        return httpx2.ReadTimeout("the answer came too slowly", request=httpx2.Request("GET", url))
    except UnicodeError:  # the name of a host that is none: a redirect may lead to any
        return httpx2.UnsupportedProtocol("the name of the host is none", request=httpx2.Request("GET", url))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return error


def _headers(token: str | None) -> dict[str, str]:
    """Who asks. ``build_hf_headers`` would first ask the Hub which agents there are (once a day), and look for torch."""
    headers = {
        "user-agent": f"hubaudit/{__version__}; hf_hub/{library_version}; python/{platform.python_version()}",
    }
    if token is None and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        try:
            token = find_token()
        except (OSError, ValueError) as error:
            raise AccessError(
                f"the Hub token cannot be read: {error}",
                hint="log in with `hf auth login`, or check HF_TOKEN_PATH, HF_HOME and HF_OIDC_RESOURCE",
            ) from None
    if token is None:
        return headers
    if not all(" " <= character <= "~" for character in token):
        raise AccessError(
            "the Hub token holds characters that no token has",
            hint="check --token or HF_TOKEN, or log in again with `hf auth login`",
        )
    return headers | {"authorization": f"Bearer {token}"}


def _ask(url: str, headers: dict[str, str], max_bytes: int, deadline: Deadline, budget: Budget | None) -> Answer:
    """One question, once, through its redirects. The token stays behind where one leads to another host: httpx2 sees to that."""
    client = _client()
    commit = None
    seconds = max(0.001, min(float(constants.HF_HUB_DOWNLOAD_TIMEOUT), deadline.seconds_left))
    try:
        request = client.build_request("GET", url, headers=headers, timeout=seconds)
        for _ in range(_MAX_REDIRECTS + 1):
            response = client.send(request, stream=True, follow_redirects=False)
            if budget is not None:
                budget.learn(str(request.url), response.status_code, response.headers)
            if commit is None and url.startswith(f"{request.url.scheme}://{request.url.netloc.decode()}/"):
                commit = response.headers.get("X-Repo-Commit")
            with closing(response):
                if response.next_request is None:
                    return replace(_answer(response, max_bytes, deadline), commit=commit)
                _read(
                    response, _MAX_REDIRECT_BYTES, deadline
                )  # a body read to its end leaves the connection for the next
            request = response.next_request
    except RuntimeError:
        if not client.is_closed:
            raise
        raise httpx2.CloseError("the connections were closed by another user of huggingface_hub") from None
    raise httpx2.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirects", request=request)


def _client() -> httpx2.Client:
    try:
        return get_session()
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        raise UsageError(
            f"no connection can be set up: {error}",
            hint="check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
        ) from None


def _answer(response: httpx2.Response, max_bytes: int, deadline: Deadline) -> Answer:
    """The end of the redirects. What a refusal says stands in its headers; its body may be endless, and is left."""
    answer = Answer(
        status=response.status_code, headers=response.headers, content=b"", is_whole=False, url=str(response.url)
    )
    if not answer.is_good:
        return answer
    content, is_whole = _read(response, max_bytes, deadline)
    return replace(answer, content=content, is_whole=is_whole)


def _read(response: httpx2.Response, max_bytes: int, deadline: Deadline) -> tuple[bytes, bool]:
    """At most ``max_bytes`` of the body, and whether that is all of it."""
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        deadline.came(len(chunk))
        if len(content) > max_bytes:
            return bytes(content[:max_bytes]), False
        if deadline.seconds_left < 0:
            raise httpx2.ReadTimeout("the answer came too slowly", request=response.request)
    return bytes(content), True


def api_url(repo_id: str, tail: str = "") -> str:
    """The address of a repository in the Hub's API, plus ``tail``."""
    return f"{constants.ENDPOINT}/api/models/{quote(repo_id)}{tail}"


def file_url(repo_id: str, revision: str, path: str) -> str:
    """The address of one file at one revision."""
    return f"{constants.ENDPOINT}/{quote(repo_id)}/resolve/{quote(revision, safe='')}/{quote(path)}"
