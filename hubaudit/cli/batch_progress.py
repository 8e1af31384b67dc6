"""How a batch is going: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.batch.plan import Item, Outcome
    from hubaudit.hub.budget import SharedBudget

_RATE_SECONDS = 30.0
_LINE_SECONDS = 10.0


class Tally:
    """Counts, rate and time left of one run."""

    def __init__(self, budget: SharedBudget, total: int | None) -> None:
        self.total = total
        self.passed_by = 0
        self.finished = 0
        self.failures = 0
        self._budget = budget
        self._marks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def passed(self, item: Item) -> None:
        """It was there before."""
        self.passed_by += 1

    def done(self, outcome: Outcome) -> None:
        """Its row is kept."""
        self.finished += 1
        self.failures += outcome.state != "audited"

    def mark(self) -> None:
        """Note the time, for the rate."""
        now = time.monotonic()
        self._marks.append((now, self.finished))
        while now - self._marks[0][0] > _RATE_SECONDS and len(self._marks) > 2:
            self._marks.popleft()

    @property
    def seen(self) -> int:
        """How far along the list."""
        return self.passed_by + self.finished

    @property
    def per_second(self) -> float:
        """Models a second, of late."""
        (first_at, first), (last_at, last) = self._marks[0], self._marks[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the rate of late; ``None`` where the list's length or the rate is not known."""
        if self.total is None or not self.per_second:
            return None
        return max(0, self.total - self.seen) / self.per_second

    def words(self) -> list[str]:
        """All but the bar."""
        words = [f"{self.per_second:.1f}/s"]
        if self.seconds_left is not None:
            words.append(f"{_span(self.seconds_left)} left")
        words.append(f"{self.failures:,} failed")
        waits = self._budget.is_waiting()
        words += [f"waiting {_span(waits)} for the Hub's quota"] if waits else []
        quotas = [
            f"{one.bucket} {one.remaining:,}" + (f"/{one.limit:,}" if one.limit else "")
            for one in self._budget.quotas()
        ]
        words += [f"quota left: {', '.join(quotas)}"] if quotas else []
        return words


class Quiet(Tally):
    """Counts, and says nothing."""

    def tick(self, under_way: int) -> None:
        """Time passes."""
        self.mark()


class Lines(Tally):
    """A plain line on stderr every ten seconds, and one at the end."""

    def __init__(self, budget: SharedBudget, total: int | None) -> None:
        super().__init__(budget, total)
        self._said_at = time.monotonic()

    def tick(self, under_way: int) -> None:
        """Say where it is, if the last time is long enough ago."""
        self.mark()
        if time.monotonic() - self._said_at >= _LINE_SECONDS:
            self.report()

    def report(self) -> None:
        """Say where it is."""
        self._said_at = time.monotonic()
        of = "" if self.total is None else f" of {self.total:,}"
        self.say(f"{self.seen:,}{of} models, {', '.join(self.words())}")

    def say(self, line: str) -> None:
        """One line on stderr."""
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress is what stderr is for


class Bar(Lines):
    """A bar that rich draws on stderr."""

    def __init__(self, budget: SharedBudget, total: int | None, progress: Any) -> None:
        super().__init__(budget, total)
        self._progress = progress
        self._task = progress.add_task("", total=total, words="")

    def tick(self, under_way: int) -> None:
        """Draw."""
        self.mark()
        self._progress.update(self._task, completed=self.seen, words=" · ".join(self.words()))

    def report(self) -> None:
        """The bar stays as it is."""
        self.tick(0)

    def say(self, line: str) -> None:
        """One line above the bar."""
        self._progress.console.print(line, highlight=False, markup=False)


@contextmanager
def open_progress(budget: SharedBudget, total: int | None, *, quiet: bool) -> Iterator[Quiet | Lines]:
    """Who is told how the run goes, as stderr can show it."""
    if quiet:
        yield Quiet(budget, total)
    elif sys.stderr.isatty():
        with _progress() as progress:
            bar = Bar(budget, total, progress)
            try:
                yield bar
            finally:
                bar.report()
    else:
        lines = Lines(budget, total)
        try:
            yield lines
        finally:
            lines.mark()
            lines.report()


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        console=Console(stderr=True),
    )


def _span(seconds: float) -> str:
    """A stretch of time for people."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"
