"""What the client library raises → what we tell the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from hubaudit.errors import AccessError, HubauditError, NetworkError, NotFoundError, OfflineError

if TYPE_CHECKING:
    from collections.abc import Callable

OFFLINE_HINT = "run once without --offline, or audit a folder or a bundle"
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


def explain(error: Exception, *, repo_id: str, revision: str | None = None, path: str | None = None) -> HubauditError:
    """The error of ours that says what happened to a request for ``repo_id``, with what to do about it.

    Raises:
        Exception: ``error`` itself, where it is neither the Hub's nor the network's doing.
    """
    if isinstance(error, HubauditError):
        return error
    at = _Asked(repo_id=repo_id, revision=revision, path=path)
    for kind, say in _SAYINGS:
        if isinstance(error, kind):
            return say(at, error)
    raise error


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


def _offline(at: _Asked, _: Exception) -> HubauditError:
    return OfflineError(f"offline, and {at.repo} is not in the cache", hint=OFFLINE_HINT)


def _gated(at: _Asked, _: Exception) -> HubauditError:
    page = f"{constants.ENDPOINT}/{at.repo_id}"
    return AccessError(f"{at.repo} is gated, and you have no access", hint=f"ask for access at {page}, then {_LOGIN}")


def _disabled(at: _Asked, _: Exception) -> HubauditError:
    return AccessError(f"{at.repo} is disabled on the Hub")


def _no_repository(at: _Asked, _: Exception) -> HubauditError:
    return NotFoundError(
        f"no model {at.repo} on {constants.ENDPOINT}, or it is private",
        hint=f"check the name; if it is private, {_LOGIN}",
    )


def _no_revision(at: _Asked, _: Exception) -> HubauditError:
    return NotFoundError(f"no revision `{at.revision}` in `{at.repo_id}`", hint="check the branch, tag or commit")


def _no_file(at: _Asked, _: Exception) -> HubauditError:
    return NotFoundError(f"no file {at.thing}")


def _timeout(at: _Asked, _: Exception) -> HubauditError:
    return NetworkError(
        f"the Hub did not answer in time (asked for {at.thing})",
        hint="try again; HF_HUB_DOWNLOAD_TIMEOUT sets the seconds",
    )


def _no_connection(_: _Asked, __: Exception) -> HubauditError:
    return NetworkError(
        f"could not connect to {constants.ENDPOINT}",
        hint="check the network, the proxy and HF_ENDPOINT; --offline uses the cache",
    )


def _endless(at: _Asked, _: Exception) -> HubauditError:
    return NetworkError(f"the Hub redirects without end (asked for {at.thing})", hint="check HF_ENDPOINT")


def _broken(at: _Asked, error: Exception) -> HubauditError:
    return NetworkError(f"the connection broke (asked for {at.thing}): {type(error).__name__}", hint="try again")


def _bad_address(at: _Asked, error: Exception) -> HubauditError:
    return NetworkError(f"the address for {at.thing} is no good: {error}", hint="check HF_ENDPOINT")


def _by_status(at: _Asked, error: Exception) -> HubauditError:
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
    if status == 401:  # over plain http the client library does not type the Hub's bare 401
        return _no_repository(at, error)
    if status == 403:
        return AccessError(f"access to {at.repo} is forbidden", hint="check that your token may read it")
    if status == 404:
        return NotFoundError(f"not found: {at.thing}")
    later = "try again later" if status >= 500 else "check HF_ENDPOINT"
    return NetworkError(f"the Hub answered {status} (asked for {at.thing})", hint=later)


#: Subclasses before their bases.
_SAYINGS: tuple[tuple[type[Exception], Callable[[_Asked, Exception], HubauditError]], ...] = (
    (OfflineModeIsEnabled, _offline),
    (GatedRepoError, _gated),
    (DisabledRepoError, _disabled),
    (RepositoryNotFoundError, _no_repository),
    (RevisionNotFoundError, _no_revision),
    (EntryNotFoundError, _no_file),
    (HfHubHTTPError, _by_status),
    (httpx2.TimeoutException, _timeout),
    (httpx2.ConnectError, _no_connection),
    (httpx2.TooManyRedirects, _endless),
    (httpx2.UnsupportedProtocol, _bad_address),
    (httpx2.InvalidURL, _bad_address),
    (httpx2.HTTPError, _broken),
)
