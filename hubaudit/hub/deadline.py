"""A call that ends by a deadline, whatever it waits for; a large answer that keeps coming moves the deadline."""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


#: What comes more slowly than this runs out of time in the end; so 100 MB, the most of any file, are worth 200 s more.
SLOWEST_BYTES_PER_SECOND = 500_000


class Deadline:
    """A point in monotonic time. Every byte that came moves it, so that a large answer over a slow line has its time, and a byte now and then has not."""

    __slots__ = ("ends_at",)

    def __init__(self, seconds: float) -> None:
        self.ends_at = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Not above zero where it has passed."""
        return self.ends_at - time.monotonic()

    def came(self, count: int) -> None:
        """So many bytes of an answer are there."""
        self.ends_at += count / SLOWEST_BYTES_PER_SECOND

    def waited(self, seconds: float) -> None:
        """A wait that counts as nobody's time."""
        self.ends_at += seconds


def call_within(deadline: Deadline, call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, if it does so before ``deadline``, which it may move.

    A socket's timeout bounds one wait for the next bytes, never their sum, and nothing bounds the look-up of a name. So the call has a
    thread of its own, which is left behind when the time is up: a daemon, so that it keeps no program from ending.

    Raises:
        TimeoutError: the time is up.
    """
    future = started(call)
    while not wait((future,), timeout=max(0.0, deadline.seconds_left)).done:
        if deadline.seconds_left <= 0:
            raise TimeoutError
    return future.result()


def started(call: Callable[[], T]) -> Future[T]:
    """``call``, under way in a daemon thread of its own."""
    future: Future[T] = Future()
    Thread(target=_fulfil, args=(future, call), daemon=True, name="hubaudit request").start()
    return future


def _fulfil(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
        future.set_exception(error)
