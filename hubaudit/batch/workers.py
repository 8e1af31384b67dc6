"""Processes of this machine that audit for a batch: new ones where one was lost, and none that outlives the batch."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Executor):
    """So many processes, each started afresh.

    A copy of this process (fork) would hold the lock on the run's directory for as long as it lives, and any other lock that a thread held when
    it was made. The standard library's pool takes nothing more once one of its processes was killed; here the next call has a new pool.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._pool = self._made()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have it called in one of the processes. What was under way in a pool that lost one ends with ``BrokenExecutor``."""
        with _begun_without_interrupts():  # the pool begins its processes here, one a call
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenExecutor:
                self._pool = self._made()
                return self._pool.submit(fn, *args, **kwargs)

    def close(self) -> None:
        """End the processes, whatever they do; a question to the Hub may have a minute left."""
        for process in active_children():
            process.kill()
        self._pool.shutdown(cancel_futures=True)

    def _made(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._places, mp_context=get_context("spawn"), initializer=_begin)


@contextmanager
def _begun_without_interrupts() -> Iterator[None]:
    """A process that begins meanwhile gets no Ctrl-C, which would end its imports with a traceback, before :func:`_begin` is there to see to it."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Ctrl-C is for the process that holds the journal; where that one ends in any way, this one does too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True, name="hubaudit parent").start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
