"""What the user named → RepoSnapshot: from the Hub, the cache, a folder, a file or a bundle.

Each way in imports what it needs when it is taken: a bundle needs no huggingface_hub, and the first question to the Hub, for whose answer
everything else waits, needs none of the parsers.
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.hub.parsing import parse_reference

if TYPE_CHECKING:
    from threading import Event

    from hubaudit.hub.reference import Reference
    from hubaudit.hub.session import HubSession, Patience
    from hubaudit.types import RepoSnapshot


def fetch(
    name: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: Path | None = None,
    offline: bool = False,
    patience: Patience | None = None,
    file: str | None = None,
    waiting: Event | None = None,
    ask_ahead: bool = False,
) -> RepoSnapshot:
    """Read all that an audit needs of what ``name`` names, and nothing more.

    Args:
        name: a Hub id, ``id@revision``, a huggingface.co URL, a folder, a weight file or a saved bundle.
        revision: a branch, tag or commit of a Hub repository.
        token: a Hub token; by default the one that huggingface_hub finds.
        cache_dir: where snapshots are kept by commit; by default in huggingface_hub's assets cache.
        offline: ask the Hub nothing; ``HF_HUB_OFFLINE`` has the same effect.
        patience: how long to wait for the Hub.
        file: the weights to read, by their path in the repository, instead of those that loaders would choose.
        waiting: set while this call waits for something, so that its caller may compute; from the first question to the Hub on it stays so.
        ask_ahead: ask for config.json and model.safetensors together with the first question: a round trip less, for two questions that may
            find nothing.

    Raises:
        HubauditError: one of errors.py, with the reason in one line.
    """
    reference = parse_reference(name, revision=revision)
    if reference.kind in ("file", "bundle") and file is not None:
        raise UsageError(f"`{name}` is one {reference.kind}: there is nothing to choose", hint="leave out --file")
    reader = _Reader(
        token=token, patience=patience, cache_dir=cache_dir, offline=offline, waiting=waiting, ask_ahead=ask_ahead
    )
    snapshot = reader.read(reference, file or reference.file)
    if reference.kind == "bundle":
        return snapshot
    from hubaudit.hub.base import with_base

    return with_base(snapshot, reader.read)


class _Reader:
    """Reads whatever is named; the Hub's session and cache are made when they are first needed."""

    def __init__(
        self,
        *,
        token: str | None,
        patience: Patience | None,
        cache_dir: Path | None,
        offline: bool,
        waiting: Event | None,
        ask_ahead: bool,
    ) -> None:
        self._token = token
        self._patience = patience
        self._cache_dir = cache_dir
        self._offline = offline
        self._waiting = waiting
        self._ask_ahead = ask_ahead

    def read(self, reference: Reference, file: str | None = None) -> RepoSnapshot:
        match reference.kind:
            case "folder":
                from hubaudit.hub.local import read_folder

                return read_folder(reference.name, file=file)
            case "file":
                from hubaudit.hub.local import read_file

                return read_file(reference.name)
            case "bundle":
                from hubaudit.hub.bundle import read_bundle

                return read_bundle(Path(reference.name))
            case "hub":
                return self._from_hub(reference, file)

    def _from_hub(self, reference: Reference, file: str | None) -> RepoSnapshot:
        from huggingface_hub import constants

        if self._offline or constants.is_offline_mode():
            from hubaudit.hub.offline import read_offline

            return read_offline(reference, self._cache_dir, file=file)
        from hubaudit.hub.deadline import started
        from hubaudit.hub.question import ask_about

        self._leaves_time(True)  # reading the certificates takes long, and not the interpreter
        try:
            session = self._session
        finally:
            self._leaves_time(False)
        asking = None if reference.is_pinned else started(partial(ask_about, reference, session))
        from hubaudit.hub.online import fetch_from_hub

        self._leaves_time(True)
        return fetch_from_hub(reference, session, self._cache_dir, asking=asking, ask_ahead=self._ask_ahead, file=file)

    def _leaves_time(self, does: bool) -> None:
        if self._waiting is not None:
            (self._waiting.set if does else self._waiting.clear)()

    @cached_property
    def _session(self) -> HubSession:
        from hubaudit.hub.session import HubSession

        return HubSession(token=self._token, patience=self._patience)
