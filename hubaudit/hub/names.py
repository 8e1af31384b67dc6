"""The names and addresses of repositories on the Hub, by huggingface_hub's own rules.

Imported when a repository of the Hub is asked for: huggingface_hub takes longer to import than an audit of a bundle to run.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from hubaudit.errors import UsageError
from hubaudit.hub.reference import HINT, HUB_HOSTS

try:
    from huggingface_hub import constants
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import get_session as _reads_the_endpoint  # noqa: F401 - so that it fails here
    from huggingface_hub.utils import validate_repo_id
except ValueError as error:  # it reads its settings while it is imported
    raise UsageError(
        f"huggingface_hub does not start: {error}",
        hint="check HF_ENDPOINT and the other HF_* variables of the environment",
    ) from error

_OTHER_KINDS = {"datasets", "spaces", "docs", "papers", "collections", "kernels", "buckets"}


def is_repo_id(text: str) -> bool:
    """Whether ``text`` can be a repository's id, and so part of addresses and of folder names."""
    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


def split_revision(text: str) -> tuple[str, str | None]:
    """``name@revision`` → both; the revision is ``None`` where there is none."""
    name, at, revision = text.partition("@")
    if at and not revision:
        raise UsageError(f"no revision after `@` in {text[:200]!a}", hint="give a branch, a tag or a commit")
    return name, revision or None


def split_url(text: str) -> tuple[str, str | None, str | None]:
    """A URL of the Hub → the repository, the revision and the weight file that it leads to, as far as it says."""
    from hubaudit.formats.documents import is_repo_path
    from hubaudit.formats.weight_names import weight_name

    if text.startswith("hf://"):
        return (*split_revision(text.removeprefix("hf://").removeprefix("models/")), None)
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
    except ValueError:
        raise UsageError(f"not a URL: {text[:200]!a}", hint=HINT) from None
    endpoint = urlsplit(constants.ENDPOINT)
    known = parts.netloc.lower() in HUB_HOSTS or (parts.netloc == endpoint.netloc and parts.scheme in ("http", "https"))
    if not known:
        raise UsageError(
            f"not a Hugging Face URL: {text[:200]!a}",
            hint="for a mirror, set HF_ENDPOINT and give the repository id",
        )
    path = parts.path
    if parts.netloc == endpoint.netloc:
        path = path.removeprefix(endpoint.path)
    pieces = [unquote(piece) for piece in path.split("/") if piece]
    if pieces[:1] == ["models"]:
        pieces = pieces[1:]
    if not pieces or pieces[0] in _OTHER_KINDS:
        raise UsageError(f"not the URL of a model: {text[:200]!a}", hint=HINT)
    for at, piece in enumerate(pieces):
        if piece in ("tree", "blob", "resolve", "raw", "commit") and at in (1, 2):
            revision = _revision_of(pieces[at + 1 :])
            path = "/".join(pieces[at + 1 :]).removeprefix(f"{revision}/")
            is_file = piece in ("blob", "resolve", "raw") and is_repo_path(path) and weight_name(path) is not None
            return "/".join(pieces[:at]), revision, path if is_file else None
    return "/".join(pieces[:2]), None, None


def _revision_of(pieces: list[str]) -> str | None:
    """The revision that a URL's tail starts with; ``refs/pr/1`` is the only kind of name with slashes that the Hub makes."""
    if pieces[:1] == ["refs"]:
        return "/".join(pieces[:3])
    return pieces[0] if pieces else None
