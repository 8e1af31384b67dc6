"""How many requests many audits together may send: a share of the quota that the Hub advertises, and no more at once than is polite.

The Hub counts requests in fixed windows of five minutes, in buckets (``api`` and ``resolvers`` for what an audit asks), and says with every
answer how much of the window is left. So nothing is guessed: the first answer tells the quota, later ones what everybody who shares it
has used.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from huggingface_hub import constants
from huggingface_hub.utils import parse_ratelimit_headers

from hubaudit.errors import RateLimitError
from hubaudit.hub.quota import asked_wait_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What is left to the user's other programs: a fifth of the quota.
POLITE_SHARE = 0.8
PARALLEL_REQUESTS = 32
#: Seconds that two answers may disagree about when the window ends.
_SAME_WINDOW_SECONDS = 3.0
_SAFETY_SECONDS = 1.0
#: How long to leave the Hub alone where a 429 does not say: a fifth of a window.
_UNTOLD_SECONDS = 60


class Budget(Protocol):
    """Asked before each request, told after it."""

    def take(self, url: str) -> float:
        """Wait until ``url`` may be asked; the seconds that took.

        Raises:
            RateLimitError: waiting is left to somebody else.
        """

    def give_back(self, url: str) -> None:
        """The request is over, answered or not."""

    def learn(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        """What an answer said of the quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One bucket as the Hub last described it: requests in a window, those left, and the seconds until it is full again."""

    bucket: str
    limit: int | None
    remaining: int
    reset_seconds: float


def bucket_of(url: str) -> str | None:
    """The quota that a request counts against; ``None`` for another host, which has none."""
    parts = urlsplit(url)
    if parts.netloc != urlsplit(constants.ENDPOINT).netloc:
        return None
    if "/resolve/" in parts.path or "/api/resolve-cache/" in parts.path:
        return "resolvers"
    return "api" if "/api/" in parts.path else "pages"


class _Window:
    """One bucket's window."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.remaining: int | None = None
        self.reset_at = 0.0
        self.under_way = 0

    def wait_seconds(self, now: float, share: float) -> float:
        """0 where one more request is within the share, else the seconds until the window is over."""
        if self.remaining is None:
            return 0.0
        if now >= self.reset_at:
            self.remaining = self.limit
            return 0.0
        kept = 0 if self.limit is None else round(self.limit * (1 - share))
        return 0.0 if self.remaining - self.under_way > kept else self.reset_at - now

    def learn(self, now: float, remaining: int, reset_seconds: float, limit: int | None) -> None:
        """Answers come out of order: within one window the smallest number is the latest. A refusal is always taken at its word."""
        reset_at = now + reset_seconds
        if not remaining:
            self.remaining, self.reset_at = 0, reset_at
            self.limit = limit if limit is not None else self.limit
            return
        is_same = self.remaining is not None and reset_at <= self.reset_at + _SAME_WINDOW_SECONDS
        self.remaining = min(remaining, self.remaining) if is_same and self.remaining is not None else remaining
        self.reset_at = reset_at if not is_same else max(self.reset_at, reset_at)
        self.limit = limit if limit is not None else self.limit


class SharedBudget:
    """One budget for all threads of a run: at most ``share`` of each quota, at most ``parallel`` requests at once, CDN included.

    ``clock`` is for tests.
    """

    def __init__(
        self,
        *,
        share: float = POLITE_SHARE,
        parallel: int = PARALLEL_REQUESTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share = share
        self._parallel = parallel
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._under_way = 0
        self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self, url: str) -> float:
        """Wait for a free connection, and for the next window where the share of this one is used up."""
        bucket = bucket_of(url)
        started = self._clock()
        with self._changed:
            self._waiting += 1
            try:
                while (seconds := self._wait_seconds(bucket)) != 0.0:
                    if self._closed:
                        raise RateLimitError(
                            "the run was stopped while it waited for the Hub's quota", hint="run it again"
                        )
                    self._changed.wait(seconds)
            finally:
                self._waiting -= 1
            self._under_way += 1
            if bucket is not None:
                self._window(bucket).under_way += 1
        return self._clock() - started

    def give_back(self, url: str) -> None:
        """The connection is free for the next."""
        bucket = bucket_of(url)
        with self._changed:
            self._under_way -= 1
            if bucket is not None:
                self._window(bucket).under_way -= 1
            self._changed.notify_all()

    def learn(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        """Take over what the answer says; a 429 closes the bucket until it says, or for a minute."""
        bucket = bucket_of(url)
        if bucket is None:
            return
        told = quota_told(bucket, status, headers)
        if told is not None:
            self.note(told)

    def note(self, quota: Quota) -> None:
        """What somebody learnt of a bucket."""
        with self._changed:
            window = self._window(quota.bucket)
            window.learn(self._clock(), quota.remaining, quota.reset_seconds, quota.limit)

    def seconds_until(self, needs: Mapping[str, float]) -> float:
        """0 where so many requests of each bucket are within the share, else the seconds until they may be."""
        with self._changed:
            now = self._clock()
            waits = []
            for bucket, count in needs.items():
                window = self._window(bucket)
                window.under_way += int(count)
                waits.append(window.wait_seconds(now, self._share))
                window.under_way -= int(count)
            return max(waits, default=0.0)

    def quotas(self) -> tuple[Quota, ...]:
        """Every bucket that an answer has described, as it is now."""
        with self._changed:
            now = self._clock()
            return tuple(
                Quota(
                    bucket=bucket,
                    limit=window.limit,
                    remaining=window.remaining,
                    reset_seconds=max(0.0, window.reset_at - now),
                )
                for bucket, window in self._windows.items()
                if window.remaining is not None
            )

    def is_waiting(self) -> float:
        """Seconds that everybody waits for a new window; 0 where there is something to do."""
        with self._changed:
            now = self._clock()
            waits = [window.wait_seconds(now, self._share) for window in self._windows.values()]
            return max(waits, default=0.0) if self._waiting and not self._under_way else 0.0

    def close(self) -> None:
        """Nobody waits any more: the run is over."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _window(self, bucket: str) -> _Window:
        return self._windows.setdefault(bucket, _Window())

    def _wait_seconds(self, bucket: str | None) -> float | None:
        """0 where the request may go, ``None`` until another one is over, else the seconds until the window is."""
        if self._under_way >= self._parallel:
            return None
        seconds = 0.0 if bucket is None else self._window(bucket).wait_seconds(self._clock(), self._share)
        return seconds + _SAFETY_SECONDS if seconds > 0 else 0.0


class Meter:
    """A budget that belongs to somebody else, as a worker on another machine sees it.

    It counts, and keeps what the answers say for the one who shares the budget out. It never waits for a new window: a worker would sleep on
    a place that another task could use.
    """

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self._told: dict[str, Quota] = {}
        self._lock = threading.Lock()

    def take(self, url: str) -> float:
        """Count the request.

        Raises:
            RateLimitError: an answer to this worker has said that nothing is left.
        """
        bucket = bucket_of(url)
        if bucket is None:
            return 0.0
        with self._lock:
            told = self._told.get(bucket)
            if told is not None and told.remaining <= 0:
                raise RateLimitError(f"the Hub's quota `{bucket}` is used up", hint="try again in a few minutes")
            self.sent[bucket] = self.sent.get(bucket, 0) + 1
        return 0.0

    def give_back(self, url: str) -> None:
        """Nobody waits for it."""

    def learn(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        """Keep the smallest number."""
        bucket = bucket_of(url)
        told = None if bucket is None else quota_told(bucket, status, headers)
        if told is None:
            return
        with self._lock:
            known = self._told.get(told.bucket)
            if known is None or told.remaining <= known.remaining:
                self._told[told.bucket] = told

    def told(self) -> tuple[Quota, ...]:
        """The quotas as the answers described them."""
        with self._lock:
            return tuple(self._told.values())


def quota_told(bucket: str, status: int, headers: Mapping[str, str]) -> Quota | None:
    """What an answer says of the quota that it was counted against."""
    try:
        told = parse_ratelimit_headers(headers)
    except ValueError:  # a number of thousands of digits
        told = None
    if status == 429:
        asked = asked_wait_seconds(status, headers)
        seconds = _UNTOLD_SECONDS if asked is None else asked
        return Quota(bucket=bucket, limit=None if told is None else told.limit, remaining=0, reset_seconds=seconds)
    if told is None:
        return None
    return Quota(
        bucket=bucket, limit=told.limit, remaining=max(0, told.remaining), reset_seconds=max(0, told.reset_in_seconds)
    )
