"""A repository on the Hub → RepoSnapshot, asking as few questions as the answer needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from hubaudit.errors import HubauditError, MalformedFileError, NetworkError
from hubaudit.formats.documents import is_repo_path, parse_object
from hubaudit.hub.assemble import read_contents
from hubaudit.hub.cache import SnapshotCache
from hubaudit.hub.deadline import started
from hubaudit.hub.digests import digest_in
from hubaudit.hub.early import EarlyAnswers
from hubaudit.hub.failures import disabled, endpoint
from hubaudit.hub.names import is_repo_id
from hubaudit.hub.question import MAX_JSON_BYTES, ask_about
from hubaudit.hub.reference import COMMIT
from hubaudit.hub.remote import RemoteFile
from hubaudit.hub.session import HubSession, Wanted, api_url, file_url
from hubaudit.hub.terms import terms_of
from hubaudit.types import Json, ReadProblem, RepoFile, RepoSnapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from hubaudit.hub.answer import Answer
    from hubaudit.hub.digests import Digest
    from hubaudit.hub.reference import Reference
    from hubaudit.types import Terms

PARALLEL_REQUESTS = 32
_MAX_SERVED_BYTES = 256_000_000
_LONGEST_LIBRARY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoInfo:
    """The Hub's own word on a repository: the commit that a branch means now, and what lies there with which hash."""

    repo_id: str
    commit: str
    files: tuple[RepoFile, ...]
    library_name: str | None
    hub_parameters: Mapping[str, int] | None
    terms: Terms
    digests: Mapping[str, Digest] = field(default_factory=dict)


def fetch_from_hub(
    reference: Reference,
    session: HubSession,
    cache_dir: Path | None,
    *,
    asking: Future[Answer] | None = None,
    ask_ahead: bool = False,
    file: str | None = None,
) -> RepoSnapshot:
    """All that an audit needs of one repository.

    One question finds the commit; everything else is read at that commit, or comes from the cache where that commit was audited
    before. A commit given in full is looked up in the cache first. ``asking`` is the answer to that question, where it is already asked. To
    ``ask_ahead`` is to ask for what a name that was never read before will need while that answer is awaited.

    Raises:
        HubauditError: the repository cannot be found or read, or the network fails.
    """
    cache = SnapshotCache(cache_dir)
    if reference.is_pinned and (known := cache.known(reference, file)) is not None:
        return replace(known, revision=reference.revision)
    is_new = ask_ahead and asking is not None and file is None and cache.noted(reference) is None
    early = EarlyAnswers(reference, session) if is_new else None
    info = repo_info(reference, ask_about(reference, session) if asking is None else asking.result())
    return fetch_at(info, reference, session, cache, file=file, early=early)


def fetch_at(
    info: RepoInfo,
    reference: Reference,
    session: HubSession,
    cache: SnapshotCache,
    *,
    file: str | None = None,
    early: EarlyAnswers | None = None,
) -> RepoSnapshot:
    """What lies at the commit that ``info`` names: from the cache, or read now and kept there.

    Raises:
        HubauditError: as for :func:`fetch_from_hub`.
    """
    cache.remember(reference, info.repo_id, info.commit)
    if (known := cache.load(info.repo_id, info.commit, file)) is not None:
        return replace(known, revision=reference.revision)
    reader = _HubReader(info, session, on_main=reference.revision in (None, "main"), early=early)
    contents = read_contents(reader, file=file)
    snapshot = RepoSnapshot(
        repo_id=info.repo_id,
        revision=reference.revision,
        commit=info.commit,
        source="hub",
        files=info.files,
        configs=contents.configs,
        weights=tuple(contents.weights),
        indexes=tuple(contents.indexes),
        library_name=info.library_name,
        hub_parameters=info.hub_parameters,
        terms=info.terms,
        problems=tuple(contents.problems),
        chosen=tuple(contents.chosen),
        others=tuple(contents.others),
    )
    if not may_be_damaged(snapshot.problems, reader.proven):
        cache.save(snapshot, file)
    return snapshot


def may_be_damaged(problems: Iterable[ReadProblem], proven: Collection[str] = ()) -> bool:
    """Whether a file that breaks its format's rules may have been broken on its way here: then the next audit reads it anew.

    A whole file was held against its hash when it came, and is ``proven``. Of a weight file only the start is read, which no hash is known of.
    """
    return any(one.kind in ("unreadable", "truncated") and one.path not in proven for one in problems)


class _HubReader:
    """The files of one repository at one commit."""

    parallel = PARALLEL_REQUESTS

    def __init__(self, info: RepoInfo, session: HubSession, *, on_main: bool, early: EarlyAnswers | None) -> None:
        self.files = info.files
        self.proven: set[str] = set()
        self._info = info
        self._session = session
        self._on_main = on_main
        self._early = early
        self._sizes = {file.path: file.size_bytes for file in info.files}

    def read(self, path: str, max_bytes: int) -> bytes:
        answer = None if self._early is None else self._early.whole(path, self._info.commit)
        if answer is not None:
            with suppress(HubauditError):
                return self._checked(path, answer, max_bytes)
        url = file_url(self._info.repo_id, self._info.commit, path)
        return self._checked(path, self._session.get(url, self._wanted(path), max_bytes=max_bytes), max_bytes)

    def _checked(self, path: str, answer: Answer, max_bytes: int) -> bytes:
        """The content of ``answer``, if it is what the listing says of the file."""
        if not answer.is_whole:
            raise MalformedFileError(path, f"larger than {max_bytes} bytes")
        if "text/html" in answer.headers.get("Content-Type", ""):
            raise NetworkError(
                f"`{path}` of `{self._info.repo_id}`: the server answered with a web page",
                hint="check HF_ENDPOINT and the proxy",
            )
        size_bytes = self._sizes.get(path)
        if size_bytes is not None and size_bytes != len(answer.content):
            raise NetworkError(
                f"`{path}` of `{self._info.repo_id}`: {len(answer.content)} of {size_bytes} bytes came",
                hint="try again",
            )
        digest = self._info.digests.get(path)
        if digest is not None:
            if not digest.is_of(answer.content):
                raise NetworkError(
                    f"`{path}` of `{self._info.repo_id}`: other bytes came than those that the listing has the hash of",
                    hint="try again; if it stays, the mirror or proxy is at fault",
                )
            self.proven.add(path)
        return answer.content

    def open(self, path: str) -> RemoteFile:
        size_bytes = self._sizes.get(path)
        start = None if self._early is None else self._early.start(path, self._info.commit, size_bytes)
        return RemoteFile(self._session, self._wanted(path), size_bytes=size_bytes, start=start)

    def headers_at_once(self, index: str) -> tuple[Json, Mapping[str, Json]] | None:
        """All headers in one request, where the Hub has it (``main`` only), and only if ``main`` is still the commit we read.

        Any failure means the range reads instead: mirrors do not have this address, and the quota of file reads is another one.
        """
        if not self._on_main:
            return None
        url = api_url(self._info.repo_id, f"/safetensors-metadata/{quote(index)}")
        try:
            answer = self._session.get(
                url, Wanted(repo_id=self._info.repo_id, path=index), max_bytes=_MAX_SERVED_BYTES, retries=0
            )
            told = answer.headers.get("X-Repo-Commit")
            asking = started(self._commit_of_main) if told is None and answer.is_whole else None
            # decoded and written again by the Hub, so no key comes twice, and looking for one takes as long as all the rest
            served = parse_object(answer.content, index) if answer.is_whole else {}
            headers, described = served.get("headers"), served.get("index")
            if not isinstance(headers, dict) or not isinstance(described, dict):
                return None
            commit = told if asking is None else asking.result()
        except HubauditError:
            return None
        return (described.get("metadata"), headers) if commit == self._info.commit else None

    def _commit_of_main(self) -> Json:
        url = api_url(self._info.repo_id, "?expand[]=sha")
        answer = self._session.get(url, Wanted(repo_id=self._info.repo_id), max_bytes=MAX_JSON_BYTES)
        return parse_object(answer.content, "model info").get("sha")

    def _wanted(self, path: str) -> Wanted:
        return Wanted(repo_id=self._info.repo_id, revision=self._info.commit, path=path)


def repo_info(reference: Reference, answer: Answer) -> RepoInfo:
    """What the Hub said when it was asked about ``reference``.

    Raises:
        HubauditError: the repository is disabled, or that was no Hub's answer.
    """
    try:
        info = parse_object(answer.content, "model info") if answer.is_whole else {}
    except MalformedFileError:
        info = {}
    if info.get("disabled") is True:
        raise disabled(reference.name)
    repo_id, commit, siblings = info.get("id"), info.get("sha"), info.get("siblings")
    is_named = isinstance(repo_id, str) and is_repo_id(repo_id)
    is_pinned = isinstance(commit, str) and COMMIT.fullmatch(commit) is not None
    if not is_named or not is_pinned or not isinstance(siblings, list):
        raise NetworkError(
            f"{endpoint()} does not answer like a Hub (asked about `{reference.name}`)",
            hint="check HF_ENDPOINT, and the proxy between you and the Hub",
        )
    library = info.get("library_name")
    return RepoInfo(
        repo_id=str(repo_id),
        commit=str(commit),
        files=_listing(siblings),
        digests=_digests(siblings),
        library_name=library if isinstance(library, str) and len(library) <= _LONGEST_LIBRARY else None,
        hub_parameters=_hub_parameters(info.get("safetensors")),
        terms=terms_of(info.get("cardData"), gated=info.get("gated")),
    )


def _listing(siblings: Json) -> tuple[RepoFile, ...]:
    files = []
    for sibling in siblings if isinstance(siblings, list) else ():
        path = sibling.get("rfilename") if isinstance(sibling, dict) else None
        if isinstance(sibling, dict) and isinstance(path, str) and is_repo_path(path):
            size = sibling.get("size")
            files.append(RepoFile(path=path, size_bytes=size if type(size) is int and size >= 0 else None))
    return tuple(files)


def _digests(siblings: Json) -> Mapping[str, Digest]:
    rows = [one for one in siblings if isinstance(one, dict)] if isinstance(siblings, list) else []
    found = {path: digest_in(one) for one in rows if isinstance(path := one.get("rfilename"), str)}
    return {path: digest for path, digest in found.items() if digest is not None}


def _hub_parameters(safetensors: Json) -> Mapping[str, int] | None:
    counts = safetensors.get("parameters") if isinstance(safetensors, dict) else None
    if not isinstance(counts, dict):
        return None
    return {dtype: count for dtype, count in counts.items() if type(count) is int and count >= 0}
