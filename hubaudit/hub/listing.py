"""Which models there are: the Hub's listings and collections, a thousand models a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import httpx2
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.hf_api import ModelSort_T

from hubaudit.errors import HubauditError, NotFoundError, UsageError
from hubaudit.hub.answer import Answer
from hubaudit.hub.failures import explain
from hubaudit.hub.names import is_repo_id
from hubaudit.hub.reference import COMMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The orders that the Hub knows, as huggingface_hub spells them.
SORTS: tuple[str, ...] = get_args(ModelSort_T)
_SLUG = "a collection's slug is `owner/title-id`, as in its page's address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question for models. ``filters`` are tags that all must be there; ``limit`` is the most models to list."""

    author: str | None = None
    search: str | None = None
    filters: tuple[str, ...] = ()
    collection: str | None = None
    sort: str | None = None
    limit: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked, which would mean every model of the Hub."""
        return self == Query()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One model of a listing, and the commit of its ``main`` where the listing says."""

    repo_id: str
    commit: str | None = None


def list_models(query: Query, *, token: str | None = None) -> Iterator[Listed]:
    """The models that ``query`` asks for, page by page as they are taken.

    Raises:
        UsageError: the query makes no sense.
        HubauditError: the Hub does not answer, or refuses.
    """
    listed = _collection(query, token) if query.collection is not None else _listing(query, token)
    try:
        yield from listed
    except Exception as error:  # noqa: BLE001 - told in our words; what is no failure of the Hub is raised as it is
        raise _told(query, error) from None


def _listing(query: Query, token: str | None) -> Iterator[Listed]:
    asked: dict[str, Any] = {
        "author": query.author,
        "search": query.search,
        "filter": list(query.filters) or None,
        "sort": query.sort,
        "limit": query.limit,
    }
    for model in HfApi(endpoint=constants.ENDPOINT).list_models(**asked, expand=["sha"], token=token):
        if is_repo_id(model.id):
            is_commit = isinstance(model.sha, str) and COMMIT.fullmatch(model.sha) is not None
            yield Listed(repo_id=model.id, commit=model.sha if is_commit else None)


def _collection(query: Query, token: str | None) -> Iterator[Listed]:
    if query.author or query.search or query.filters or query.sort:
        raise UsageError(
            "a collection is listed whole, in its own order", hint="leave out --author, --search, --filter and --sort"
        )
    slug = str(query.collection).removeprefix(f"{constants.ENDPOINT}/collections/")
    items = HfApi(endpoint=constants.ENDPOINT).get_collection(slug, token=token).items
    models = [item.item_id for item in items if item.item_type == "model" and is_repo_id(item.item_id)]
    yield from (Listed(repo_id=repo_id) for repo_id in models[: query.limit])


def _told(query: Query, error: Exception) -> HubauditError:
    """A listing that failed, in the words of any other question."""
    if isinstance(error, HubauditError):
        return error
    what = f"collection {query.collection}" if query.collection else "the listing of models"
    if isinstance(error, HFValidationError) or type(error) in (ValueError, IndexError, KeyError, TypeError):
        return UsageError(f"the Hub cannot be asked so: {error}", hint=_SLUG if query.collection else "check the query")
    outcome: Answer | Exception = error
    if isinstance(error, HfHubHTTPError):
        response = error.response
        if query.collection and response.status_code in (401, 403, 404):
            return NotFoundError(f"no collection `{query.collection}`, or it is private", hint=_SLUG)
        outcome = Answer(
            status=response.status_code, headers=response.headers, content=b"", is_whole=False, url=str(response.url)
        )
    elif not isinstance(error, (httpx2.HTTPError, httpx2.InvalidURL, OSError)):
        raise error
    explainer: Callable[..., HubauditError] = explain
    return explainer(outcome, repo_id=what, revision=None, path=None)
