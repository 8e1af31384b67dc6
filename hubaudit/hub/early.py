"""Questions that are asked together with the first, before the commit is known: an answer of that commit saves a round trip.

Almost every repository has a config.json, and most have their weights in one model.safetensors. Both are asked for at the branch; what comes
counts only where the Hub says that it is of the commit which the branch meant, and where nothing about it is odd. All else is asked anew.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hubaudit.errors import HubauditError
from hubaudit.formats.documents import MAX_CONFIG_BYTES
from hubaudit.formats.safetensors import FIRST_READ_BYTES
from hubaudit.hub.deadline import started
from hubaudit.hub.session import Wanted, file_url

if TYPE_CHECKING:
    from concurrent.futures import Future

    from hubaudit.hub.answer import Answer
    from hubaudit.hub.reference import Reference
    from hubaudit.hub.session import HubSession

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
#: How long an early answer is waited for once it is needed; a question that hangs is asked again, with all patience.
_WAIT_SECONDS = 5.0


class EarlyAnswers:
    """The answers to both questions, as they come."""

    def __init__(self, reference: Reference, session: HubSession) -> None:
        self._reference = reference
        self._session = session
        self._asked = {
            CONFIG: self._ask(CONFIG, max_bytes=MAX_CONFIG_BYTES),
            WEIGHTS: self._ask(WEIGHTS, max_bytes=FIRST_READ_BYTES, byte_range=(0, FIRST_READ_BYTES)),
        }

    def whole(self, path: str, commit: str) -> Answer | None:
        """The whole file, if it was asked for and came at ``commit``."""
        answer = self._of(path, commit)
        return answer if answer is not None and answer.status == 200 and answer.is_whole else None

    def start(self, path: str, commit: str, size_bytes: int | None) -> Answer | None:
        """The first bytes of the file, if they were asked for and are those of a file of ``size_bytes`` at ``commit``."""
        answer = self._of(path, commit)
        if answer is None or answer.status != 206 or size_bytes is None:
            return None
        expected = min(FIRST_READ_BYTES, size_bytes)
        said = answer.headers.get("Content-Range")
        return answer if (len(answer.content), said) == (expected, f"bytes 0-{expected - 1}/{size_bytes}") else None

    def _of(self, path: str, commit: str) -> Answer | None:
        asked = self._asked.pop(path, None)
        try:
            answer = None if asked is None else asked.result(timeout=_WAIT_SECONDS)
        except (HubauditError, TimeoutError):
            return None
        return answer if answer is not None and answer.commit == commit else None

    def _ask(self, path: str, *, max_bytes: int, byte_range: tuple[int, int] | None = None) -> Future[Answer]:
        revision = self._reference.revision or "main"
        name = self._reference.name
        wanted = Wanted(repo_id=name, revision=revision, path=path)
        url = file_url(name, revision, path)
        ask = partial(self._session.get, url, wanted, max_bytes=max_bytes, byte_range=byte_range, retries=0)
        return started(ask)
