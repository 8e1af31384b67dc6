"""A call that ends by a deadline, whatever it waits for."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, if it does so within ``seconds``.

    A socket's timeout bounds one wait for the next bytes, never their sum, and nothing bounds the look-up of a name. So the call has a
    thread of its own, which is left behind when the time is up: a daemon, so that it keeps no program from ending.

    Raises:
        TimeoutError: the time is up.
    """
    return started(call).result(timeout=seconds)


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
