"""A question that failed → what we tell the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import OfflineModeIsEnabled

from hubaudit.errors import AccessError, HubauditError, NetworkError, NotFoundError, OfflineError, RateLimitError
from hubaudit.hub.quota import asked_wait_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.hub.answer import Answer

OFFLINE_HINT = "run once without --offline, or audit a folder or a bundle"
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


def explain(outcome: Answer | Exception, *, repo_id: str, revision: str | None, path: str | None) -> HubauditError:
    """The error that says what happened to a question about ``repo_id``, with what to do about it.

    Args:
        outcome: the refusal that came, or the exception that came in its place.
        repo_id: the repository asked about.
        revision: the revision asked for.
        path: the file asked for, ``None`` where it was the repository itself.

    Raises:
        Exception: ``outcome`` itself, where it is neither the Hub's nor the network's doing.
    """
    at = _Asked(repo_id=repo_id, revision=revision, path=path)
    if not isinstance(outcome, Exception):
        return _refused(at, outcome)
    for kind, say in _BY_EXCEPTION:
        if isinstance(outcome, kind):
            return say(at, outcome)
    raise outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    repo_id: str
    revision: str | None
    path: str | None

    @property
    def repo(self) -> str:
        return f"`{self.repo_id}`" + (f" at `{self.revision}`" if self.revision else "")

    @property
    def thing(self) -> str:
        return f"`{self.path}` of {self.repo}" if self.path else self.repo


# --- the Hub, or another host, answered, and refused ---------------------------------------------------------------------


def _refused(at: _Asked, answer: Answer) -> HubauditError:
    """By the code that the Hub gives, else by the status, which from any other host says nothing of the repository."""
    code, said = answer.headers.get("X-Error-Code", ""), answer.headers.get("X-Error-Message", "")
    if answer.status == 429:
        return _rate_limited(at, answer)
    if code in _BY_CODE:
        return _BY_CODE[code](at)
    if said == "Access to this resource is disabled.":
        return disabled(at.repo_id)
    if answer.status in _BY_STATUS and _is_hubs_word(at, answer):
        if said == "Invalid credentials in Authorization header":
            return AccessError("the Hub does not accept your token", hint=f"check it, or {_LOGIN}")
        return _BY_STATUS[answer.status](at)
    later = "try again later" if answer.status >= 500 else "check HF_ENDPOINT, and the proxy between you and the Hub"
    return NetworkError(f"{_host(answer.url)} answered {answer.status} (asked for {at.thing})", hint=later)


def _is_hubs_word(at: _Asked, answer: Answer) -> bool:
    """Whether a refusal without a code is about the repository: not from a storage host, and not that a listed file is not there."""
    is_hub = urlsplit(answer.url).hostname == urlsplit(constants.ENDPOINT).hostname
    return is_hub and not (answer.status == 404 and at.path is not None)


def _rate_limited(at: _Asked, answer: Answer) -> HubauditError:
    seconds = asked_wait_seconds(answer.status, answer.headers)
    when = "in a few minutes" if seconds is None else f"in {seconds} seconds"
    return RateLimitError(
        f"the rate limit of {_host(answer.url)} is used up (asked for {at.thing})",
        hint=f"try again {when}; with a login (`hf auth login` or HF_TOKEN) the quota is higher",
    )


def disabled(repo_id: str) -> AccessError:
    """The Hub has closed the repository to everyone."""
    return AccessError(f"`{repo_id}` is disabled on the Hub", hint="its page on the Hub may say why")


def _gated(at: _Asked) -> HubauditError:
    page = f"{endpoint()}/{at.repo_id}"
    return AccessError(
        f"`{at.repo_id}` is gated, and you have no access", hint=f"ask for access at {page}, then {_LOGIN}"
    )


def _no_repository(at: _Asked) -> HubauditError:
    return NotFoundError(
        f"no model {at.repo} on {endpoint()}, or it is private", hint=f"check the name; if it is private, {_LOGIN}"
    )


def _no_revision(at: _Asked) -> HubauditError:
    return NotFoundError(
        f"no revision `{at.revision or 'main'}` in `{at.repo_id}`", hint="check the branch, tag or commit"
    )


def _not_found(at: _Asked) -> HubauditError:
    return NotFoundError(f"not found: {at.thing}", hint="check the name and the revision")


def _forbidden(at: _Asked) -> HubauditError:
    return AccessError(f"access to {at.repo} is forbidden", hint="check that your token may read it")


_BY_CODE: dict[str, Callable[[_Asked], HubauditError]] = {
    "GatedRepo": _gated,
    "RepoNotFound": _no_repository,
    "RevisionNotFound": _no_revision,
    "EntryNotFound": _not_found,
}
#: The Hub answers a bare 401 for a repository that does not exist, or may not be seen.
_BY_STATUS: dict[int, Callable[[_Asked], HubauditError]] = {401: _no_repository, 403: _forbidden, 404: _no_repository}


# --- no answer came ------------------------------------------------------------------------------------------------------


def _offline(at: _Asked, _: Exception) -> HubauditError:
    return OfflineError(f"offline, and {at.repo} is not in the cache", hint=OFFLINE_HINT)


def _timeout(at: _Asked, error: Exception) -> HubauditError:
    return NetworkError(
        f"{_host_of(error)} did not answer in time (asked for {at.thing})",
        hint="try again; HF_HUB_DOWNLOAD_TIMEOUT sets the seconds of one wait",
    )


def _no_connection(_: _Asked, error: Exception) -> HubauditError:
    return NetworkError(
        f"could not connect to {_host_of(error)}: {_reason(error)}",
        hint="check the network, the proxy and HF_ENDPOINT; --offline uses the cache",
    )


def _endless(at: _Asked, error: Exception) -> HubauditError:
    return NetworkError(f"{_host_of(error)} redirects without end (asked for {at.thing})", hint="check HF_ENDPOINT")


def _broken(at: _Asked, error: Exception) -> HubauditError:
    return NetworkError(
        f"the connection to {_host_of(error)} broke (asked for {at.thing}): {_reason(error)}", hint="try again"
    )


def _bad_address(at: _Asked, error: Exception) -> HubauditError:
    return NetworkError(f"the address for {at.thing} is no good: {_reason(error)}", hint="check HF_ENDPOINT")


#: Subclasses before their bases.
_BY_EXCEPTION: tuple[tuple[type[Exception], Callable[[_Asked, Exception], HubauditError]], ...] = (
    (OfflineModeIsEnabled, _offline),
    (httpx2.TimeoutException, _timeout),
    (httpx2.ConnectError, _no_connection),
    (httpx2.ProxyError, _no_connection),
    (httpx2.TooManyRedirects, _endless),
    (httpx2.UnsupportedProtocol, _bad_address),
    (httpx2.InvalidURL, _bad_address),
    (httpx2.HTTPError, _broken),
    (OSError, _broken),
)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _host_of(error: Exception) -> str:
    """The host that was asked when ``error`` came: the Hub, or the storage that it sends to."""
    try:
        return _host(str(error.request.url)) if isinstance(error, httpx2.RequestError) else endpoint()
    except RuntimeError:  # the error is of no request
        return endpoint()


def _host(url: str) -> str:
    """Scheme, host and port of an address: not its query, which may hold a signature, nor a user's name and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def endpoint() -> str:
    """The Hub that is asked, as a message may name it."""
    return _host(constants.ENDPOINT)
