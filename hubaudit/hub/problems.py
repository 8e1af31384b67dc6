"""What could not be read of a repository, where it is more than anyone reads: an index may name a million files that are not there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.types import ReadProblem

MOST_OF_A_KIND = 100
_ALWAYS_TOLD = "config.json"


def told(problems: Iterable[ReadProblem]) -> tuple[ReadProblem, ...]:
    """The first 100 of each kind; the last of them says how many more there are. What is wrong with the config is always told."""
    kept: list[ReadProblem] = []
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    for problem in problems:
        counts[problem.kind] += 1
        if counts[problem.kind] <= MOST_OF_A_KIND or problem.path == _ALWAYS_TOLD:
            last[problem.kind] = len(kept)
            kept.append(problem)
    for kind, at in last.items():
        more = counts[kind] - sum(one.kind == kind for one in kept)
        if more:
            kept[at] = replace(kept[at], reason=f"{kept[at].reason}; and {more:,} more files like it")
    return tuple(kept)
