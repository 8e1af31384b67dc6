"""Items in, rows out, over any executor shaped like those of ``concurrent.futures``: so many at once, and each row kept as soon as it is there."""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError
from functools import partial
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

from hubaudit.batch.interrupts import held_interrupts
from hubaudit.batch.work import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hubaudit.batch.journal import Journal
    from hubaudit.batch.plan import Item, Outcome

#: Seconds between two looks at the clock, for who shows progress.
TICK_SECONDS = 0.2
#: How often an item comes back to the queue because the quota was used up before it was read.
_TURNS = 20


class Pending(Protocol):
    """What the runner needs of a future."""

    def add_done_callback(self, call: Callable[[Pending], object], /) -> object:
        """Call when it is done."""

    def result(self) -> Outcome:
        """What it came to."""

    def cancel(self) -> bool:
        """Do not begin it."""


class Admission(Protocol):
    """Who says when one more item may start, where those who read the Hub cannot wait for its quota themselves."""

    def seconds_to_wait(self, under_way: int) -> float:
        """How long no more may start while so many are under way; 0 where one may."""

    def learn(self, outcome: Outcome) -> None:
        """What an item used of the quota."""


class Watcher(Protocol):
    """Who is told how the run goes."""

    def passed(self, item: Item) -> None:
        """The item was there before, in this run or in one that is resumed."""

    def done(self, outcome: Outcome) -> None:
        """The row is on the disk."""

    def tick(self, under_way: int) -> None:
        """Time passes."""


class Runner:
    """One run.

    Args:
        submit: starts an item; what it returns ends with its row.
        journal: where rows are kept, and which items are still to be done.
        watcher: who is told.
        window: how many items are under way at most.
        admission: when items may start; by default always.
        again: the states of earlier rows that are to be tried once more.
    """

    def __init__(
        self,
        *,
        submit: Callable[[Item], Pending],
        journal: Journal,
        watcher: Watcher,
        window: int,
        admission: Admission | None = None,
        again: Sequence[str] = ("later",),
    ) -> None:
        self._submit = submit
        self._journal = journal
        self._watcher = watcher
        self._window = window
        self._admission = admission
        self._is_over = False
        self._again = again
        self._finished: SimpleQueue[tuple[Item, Pending]] = SimpleQueue()
        self._under_way: dict[str, Pending] = {}
        self._returned: deque[Item] = deque()
        self._turns: dict[str, int] = {}

    def run(self, items: Iterable[Item]) -> None:
        """Do all ``items``; ends when each has its row.

        Raises:
            KeyboardInterrupt: the user stopped it. What was done is kept; what was under way is not waited for.
            HubauditError: the list cannot be read on, or the rows cannot be kept.
        """
        feed = _Feed(items, self._window)
        try:
            with held_interrupts() as heed_interrupt:
                while not (feed.is_over and not self._returned and not self._under_way):
                    heed_interrupt()
                    self._start(feed)
                    self._keep(self._wait())
                    self._watcher.tick(len(self._under_way))
            feed.raise_failure()
        except BaseException:
            self._is_over = True
            for pending in tuple(self._under_way.values()):
                pending.cancel()
            self._keep(self._ready())
            raise
        finally:
            feed.stop()

    def _start(self, feed: _Feed) -> None:
        while len(self._under_way) < self._window and self._may_start():
            item = self._returned.popleft() if self._returned else self._next(feed)
            if item is None:
                return
            pending = self._submit(item)
            self._under_way[item.name] = pending
            pending.add_done_callback(partial(self._put, item))

    def _may_start(self) -> bool:
        return self._admission is None or self._admission.seconds_to_wait(len(self._under_way)) <= 0

    def _put(self, item: Item, pending: Pending) -> None:
        self._finished.put((item, pending))

    def _next(self, feed: _Feed) -> Item | None:
        """The next item that is still to be done, if one is there yet."""
        while (item := feed.take()) is not None:
            if self._journal.claim(item, self._again):
                return item
            self._watcher.passed(item)
        return None

    def _wait(self) -> list[Outcome]:
        """What is done within a tick."""
        try:
            first = self._finished.get(timeout=TICK_SECONDS)
        except Empty:
            return []
        return [*self._taken(*first), *self._ready()]

    def _ready(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while not self._finished.empty():
            outcomes += self._taken(*self._finished.get())
        return outcomes

    def _taken(self, item: Item, pending: Pending) -> Iterator[Outcome]:
        """The row of an item; none where it has to be asked again, because a worker found the quota used up."""
        self._under_way.pop(item.name, None)
        try:
            outcome = pending.result()
        except Exception as error:  # noqa: BLE001 - whatever an executor raises for a worker that died: the item's row says so
            if self._is_over and isinstance(error, CancelledError):
                return
            outcome = failed(item, error)
        if self._admission is not None:
            self._admission.learn(outcome)
        turns = self._turns.pop(item.name, 0)
        if self._admission is not None and outcome.is_rate_limit and turns < _TURNS:
            self._turns[item.name] = turns + 1
            self._returned.append(item)
            return
        yield outcome

    def _keep(self, outcomes: list[Outcome]) -> None:
        if outcomes:
            self._journal.append(outcomes)
            for outcome in outcomes:
                self._watcher.done(outcome)


class _Feed:
    """Items read ahead in a thread of their own, a window's worth, so that a slow list does not keep finished rows from the disk."""

    def __init__(self, items: Iterable[Item], ahead: int) -> None:
        self._queue: Queue[Item | None] = Queue(maxsize=ahead)
        self._failure: BaseException | None = None
        self._stopped = Event()
        self.is_over = False
        Thread(target=self._read, args=(items,), daemon=True, name="hubaudit list").start()

    def take(self) -> Item | None:
        """The next item; ``None`` where there is none yet, or no more."""
        if self.is_over:
            return None
        try:
            item = self._queue.get(timeout=0.02)
        except Empty:
            return None
        if item is None:
            self.is_over = True
        return item

    def raise_failure(self) -> None:
        """Raise what kept the list from being read to its end."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    def _read(self, items: Iterable[Item]) -> None:
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that runs
            self._failure = error
        self._put(None)

    def _put(self, item: Item | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.5)
            except Full:
                continue
            return True
        return False
