"""The runner over executors of every kind: each item once, each row kept, whatever its worker does."""

from __future__ import annotations

import signal
import threading
import time
import tracemalloc
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from batch_rows import outcome

from hubaudit.batch.admission import SharedOut
from hubaudit.batch.journal import Journal, Rows
from hubaudit.batch.plan import Item, Outcome, Plan
from hubaudit.batch.runner import Runner
from hubaudit.errors import UsageError
from hubaudit.hub.budget import Quota, SharedBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


class Watching:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.finished: list[str] = []
        self.passed_by: list[str] = []
        self.most = 0

    def passed(self, item: Item) -> None:
        self.passed_by.append(item.name)

    def done(self, outcome: Outcome) -> None:
        self.finished.append(outcome.item.name)

    def tick(self, under_way: int) -> None:
        self.most = max(self.most, under_way)


def run(folder: Path, items: Iterable[Item], work: Callable[[Item], Outcome], **options: Any) -> Watching:
    """One run over threads."""
    watcher = Watching()
    with ThreadPoolExecutor(4) as pool, Journal(folder, Plan()) as journal:
        runner = Runner(
            submit=lambda item: pool.submit(work, item), journal=journal, watcher=watcher, window=8, **options
        )
        runner.run(items)
    return watcher


def kept(folder: Path) -> list[tuple[str, str]]:
    """Name and state of every row."""
    with Rows(folder) as rows:
        return [(row["name"], row["state"]) for row in rows]


def items(*names: str) -> list[Item]:
    """In this order."""
    return [Item(name=name, position=at) for at, name in enumerate(names)]


def audited(item: Item) -> Outcome:
    """Work that goes well."""
    return outcome(item.name, position=item.position)


def test_each_once_in_a_window(tmp_path: Path) -> None:
    """A thousand items, some of them twice: a row for each name, never more than the window under way, and again nothing to do."""
    names = [f"m{number % 900}" for number in range(1000)]
    watcher = run(tmp_path, items(*names), audited)
    assert kept(tmp_path) == [(f"m{number}", "audited") for number in range(900)]
    assert (len(watcher.finished), len(watcher.passed_by)) == (900, 100)
    assert watcher.most <= 8
    again = run(tmp_path, items(*names), audited)
    assert (len(again.finished), len(again.passed_by)) == (0, 1000)


def test_the_list_is_read_as_it_is_needed(tmp_path: Path) -> None:
    """Of an endless list, no more than the two windows ahead of the work is taken."""
    taken = 0
    gate = threading.Event()

    def endless() -> Iterator[Item]:
        nonlocal taken
        while taken < 10_000:
            taken += 1
            yield Item(name=f"m{taken}", position=taken)

    def stuck(item: Item) -> Outcome:
        if item.position == 20:
            threading.Timer(0.3, gate.set).start()
        if item.position >= 20:
            gate.wait(5)
            raise KeyboardInterrupt
        return audited(item)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, endless(), stuck)
    assert taken < 20 + 8 + 8 + 10
    assert len(kept(tmp_path)) == 19


def test_a_worker_that_dies_is_a_row(tmp_path: Path) -> None:
    """What an executor raises for it becomes a failure that is worth repeating."""

    def work(item: Item) -> Outcome:
        if item.name == "b":
            raise RuntimeError("worker killed")
        return audited(item)

    run(tmp_path, items("a", "b", "c"), work)
    assert kept(tmp_path) == [("a", "audited"), ("b", "later"), ("c", "audited")]
    run(tmp_path, items("a", "b", "c"), audited)
    assert kept(tmp_path) == [("a", "audited"), ("b", "audited"), ("c", "audited")]


def test_a_list_that_breaks_off(tmp_path: Path) -> None:
    """What was read of it is done and kept, then its error is raised."""

    def broken() -> Iterator[Item]:
        yield from items("a", "b")
        raise UsageError("the list ends here")

    with pytest.raises(UsageError, match="ends here"):
        run(tmp_path, broken(), audited)
    assert [name for name, _ in kept(tmp_path)] == ["a", "b"]


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    """Rows that came before it are on the disk; what was under way is not a failure."""

    class Impatient(Watching):
        def tick(self, under_way: int) -> None:
            if len(self.finished) >= 3:
                raise KeyboardInterrupt

    futures: dict[str, Future[Outcome]] = {}

    def submit(item: Item) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        futures[item.name] = future
        if len(futures) <= 3:
            future.set_result(audited(item))
        return future

    with Journal(tmp_path, Plan()) as journal, pytest.raises(KeyboardInterrupt):
        Runner(submit=submit, journal=journal, watcher=Impatient(), window=8).run(items(*"abcdefgh"))
    assert [name for name, _ in kept(tmp_path)] == ["a", "b", "c"]
    assert futures["d"].cancelled()
    with pytest.raises(CancelledError):
        futures["d"].result()


def test_a_slow_list_does_not_hold_rows_back(tmp_path: Path) -> None:
    """A row is kept when it is there, even if the next name has not come yet."""
    seen: list[bool] = []

    def slow() -> Iterator[Item]:
        yield Item(name="a")
        deadline = time.monotonic() + 60
        while not (is_kept := (tmp_path / "journal.jsonl").stat().st_size > 0) and time.monotonic() < deadline:
            time.sleep(0.02)
        seen.append(is_kept)
        yield Item(name="b", position=1)

    run(tmp_path, slow(), audited)
    assert seen == [True]


def test_items_start_only_as_the_quota_allows(tmp_path: Path) -> None:
    """Workers that share no memory: what each used is known when its row comes, and items that found nothing left start again."""
    budget = SharedBudget(share=1.0)
    left = 20
    refused: list[str] = []
    lock = threading.Lock()

    def work(item: Item) -> Outcome:
        nonlocal left
        with lock:
            if left < 3:
                refused.append(item.name)
                told = (Quota(bucket="api", limit=20, remaining=0, reset_seconds=0.3),)
                threading.Timer(0.25, refill).start()
                return outcome(item.name, state="later", is_rate_limit=True, sent={"api": 1}, told=told)
            left -= 3
            told = (Quota(bucket="api", limit=20, remaining=left, reset_seconds=0.3),)
        return outcome(item.name, position=item.position, sent={"api": 3}, told=told)

    def refill() -> None:
        nonlocal left
        with lock:
            left = 20

    run(tmp_path, items(*(f"m{number}" for number in range(15))), work, admission=SharedOut(budget))
    assert kept(tmp_path) == [(f"m{number}", "audited") for number in range(15)]
    assert len(refused) <= 8


def test_memory_does_not_grow_with_the_list(tmp_path: Path) -> None:
    """Ten times the list takes no more memory: names are on disk, rows in the journal, and nothing is kept of what is done."""

    def most(folder: Path, count: int) -> int:
        tracemalloc.start()
        run(folder, (Item(name=f"org/model-{at}", position=at) for at in range(count)), audited)
        with Rows(folder) as rows:
            assert sum(1 for _ in rows) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    most(tmp_path / "warm-up", 50)
    assert most(tmp_path / "long", 3000) < most(tmp_path / "short", 300) + 500_000


@pytest.mark.usefixtures("heeding_interrupts")
def test_ctrl_c_waits_for_the_row_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while rows are being kept: they are kept whole, then the run stops; a second Ctrl-C there does not wait."""
    keep = Journal.append

    def interrupted(times: int) -> Callable[[Journal, list[Outcome]], None]:
        def append(journal: Journal, outcomes: list[Outcome]) -> None:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            keep(journal, outcomes)

        return append

    for times, rows in ((1, 1), (2, 0)):
        folder = tmp_path / str(times)
        monkeypatch.setattr(Journal, "append", interrupted(times))
        with pytest.raises(KeyboardInterrupt):
            run(folder, items("only"), audited)
        assert len(kept(folder)) == rows
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
