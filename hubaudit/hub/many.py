"""Many repositories read by many threads through one session: one shared budget, one cache, nothing asked for twice."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from huggingface_hub import constants

from hubaudit.hub.base import with_base
from hubaudit.hub.bundle import read_bundle
from hubaudit.hub.cache import SnapshotCache
from hubaudit.hub.local import read_file, read_folder
from hubaudit.hub.offline import read_offline
from hubaudit.hub.online import RepoInfo, fetch_at, repo_info
from hubaudit.hub.parsing import parse_reference
from hubaudit.hub.question import ask_about
from hubaudit.hub.session import HubSession

if TYPE_CHECKING:
    from hubaudit.hub.budget import Budget
    from hubaudit.hub.reference import Reference
    from hubaudit.types import RepoSnapshot

_STRIPES = 1024
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What a name means now. ``commit`` is ``None`` for what is local; ``info`` is the Hub's answer, where it had to be asked."""

    reference: Reference
    repo_id: str | None = None
    commit: str | None = None
    info: RepoInfo | None = None


class Fetcher:
    """Reads subjects of one run. Its methods may be called by many threads at once.

    Args:
        token: a Hub token; by default the one that huggingface_hub finds.
        cache_dir: where snapshots are kept by commit; by default in huggingface_hub's assets cache.
        offline: ask the Hub nothing; ``HF_HUB_OFFLINE`` has the same effect.
        budget: what all requests are counted against.
        file: the weights to read in each repository, instead of those that loaders would choose.
        max_age_seconds: how long the Hub's word on what a branch means is taken for today's. By default it is asked each time.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        cache_dir: Path | None = None,
        offline: bool = False,
        budget: Budget | None = None,
        file: str | None = None,
        max_age_seconds: float = 0.0,
    ) -> None:
        self.cache = SnapshotCache(cache_dir)
        self._cache_dir = cache_dir
        self._token = token
        self._offline = offline or constants.is_offline_mode()
        self._budget = budget
        self._file = file
        self._max_age_seconds = max_age_seconds
        self._commits: OrderedDict[tuple[str, str | None], tuple[str, str]] = OrderedDict()
        # Two sets of locks, always taken in this order. A name's lock is shared with a few others, which costs them a wait at most.
        self._name_locks = tuple(Lock() for _ in range(_STRIPES))
        self._commit_locks = tuple(Lock() for _ in range(_STRIPES))

    def locate(self, name: str, *, commit: str | None = None) -> Located:
        """What ``name`` means: one question to the Hub, or none where the commit is known.

        Args:
            name: as for :func:`hubaudit.hub.fetch`.
            commit: what ``main`` is, where a listing has just said so.

        Raises:
            HubauditError: there is no such thing, or it cannot be reached.
        """
        reference = parse_reference(name)
        if reference.kind != "hub":
            return Located(reference=reference)
        if commit is not None and reference.revision is None:
            return Located(reference=reference, repo_id=reference.name, commit=commit)
        return self._locate(reference)

    def read(self, located: Located) -> RepoSnapshot:
        """All that an audit needs of it, its base model included.

        Raises:
            HubauditError: as for :func:`hubaudit.hub.fetch`.
        """
        file = self._file or located.reference.file
        match located.reference.kind:
            case "folder":
                return with_base(read_folder(located.reference.name, file=file), self._read_base)
            case "file":
                return with_base(read_file(located.reference.name), self._read_base)
            case "bundle":
                return read_bundle(Path(located.reference.name))
            case "hub":
                return with_base(self._read_hub(located, file), self._read_base)

    def _locate(self, reference: Reference) -> Located:
        """From what is known without asking, else from the Hub: each name is asked for once in a run."""
        if reference.is_pinned:
            return Located(reference=reference, repo_id=reference.name, commit=reference.revision)
        key = (reference.name, reference.revision)
        with self._name_locks[hash(key) % _STRIPES]:
            known = self._commits.get(key) or self._noted(reference)
            if known is not None:
                return Located(reference=reference, repo_id=known[0], commit=known[1])
            if self._offline:
                return Located(reference=reference)
            info = repo_info(reference, ask_about(reference, self._session))
            self._remember(key, (info.repo_id, info.commit))
        return Located(reference=reference, repo_id=info.repo_id, commit=info.commit, info=info)

    def _noted(self, reference: Reference) -> tuple[str, str] | None:
        if self._offline:
            return self.cache.noted(reference)
        return self.cache.noted(reference, max_age_seconds=self._max_age_seconds) if self._max_age_seconds else None

    def _remember(self, key: tuple[str, str | None], meaning: tuple[str, str]) -> None:
        self._commits[key] = meaning
        while len(self._commits) > _REMEMBERED:
            self._commits.popitem(last=False)

    def _read_hub(self, located: Located, file: str | None) -> RepoSnapshot:
        reference = located.reference
        if located.repo_id is None or located.commit is None:
            return read_offline(reference, self._cache_dir, file=file)
        with self._commit_locks[hash((located.repo_id, located.commit)) % _STRIPES]:
            snapshot = self.cache.load(located.repo_id, located.commit, file)
            if snapshot is None and self._offline:
                snapshot = read_offline(reference, self._cache_dir, file=file)
            if snapshot is None:
                pinned = replace(reference, revision=located.commit)
                info = located.info or repo_info(pinned, ask_about(pinned, self._session))
                snapshot = fetch_at(info, reference, self._session, self.cache, file=file)
        return replace(snapshot, revision=reference.revision)

    def _read_base(self, reference: Reference) -> RepoSnapshot:
        if reference.kind == "folder":
            return read_folder(reference.name)
        return self._read_hub(self._locate(reference), None)

    @cached_property
    def _session(self) -> HubSession:
        return HubSession(token=self._token, budget=self._budget)
