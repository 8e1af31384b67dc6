"""A parameter count in the repository's name that is not the model's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hubaudit.findings.counts import is_near, known_counts
from hubaudit.findings.rule import Rule
from hubaudit.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

#: "7B", "0.5b", "135M", "8x7B"; the 3 of "A3B" (active) and "E4B" (effective) is no count of all parameters.
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(?P<times>[0-9]{1,3})x)?(?P<number>[0-9]{1,4}(?:\.[0-9]{1,3})?)(?P<unit>[BMT])(?![A-Za-z0-9])",
    re.I,
)
_UNITS = {"M": 10**6, "B": 10**9, "T": 10**12}
_GROSS = 1.5


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding where no size in the name is within 5 % of a count of the model: all, those loaded, or those without the embeddings."""
    if facts.parameters is None or facts.library == "peft":
        return
    name = re.split(r"[/\\]", snapshot.repo_id)[-1]
    sizes = [_range(match) for match in _SIZE.finditer(name)]
    counts = known_counts(facts)
    if not sizes or any(_within(count, size) for size in sizes for count in counts):
        return
    least, most = sizes[0]
    total = facts.parameters.total
    is_gross = not least / _GROSS <= total <= most * _GROSS
    yield RULE.found(
        f"the name says {format_count(round(most))}, the model has {format_count(total)} parameters ({total / most - 1:+.0%})",
        where=facts.parameters.where if facts.parameters.where.startswith("config.json") else snapshot.repo_id,
        severity="warning" if is_gross else None,
    )


def _range(match: re.Match[str]) -> tuple[float, float]:
    """The least and the most that a name stands for: experts of 8x7B share their attention, so it is more than 7B and at most 56B."""
    one = float(match["number"]) * _UNITS[match["unit"].upper()]
    return (one, one) if match["times"] is None else (one, one * int(match["times"]))


def _within(count: int, size: tuple[float, float]) -> bool:
    return size[0] <= count <= size[1] or any(is_near(count, end) for end in size)


RULE = Rule(
    id="name-parameter-count",
    severity="info",
    title="the name says another size",
    about="Names round, and some round far: a 7B of 7.62 billion parameters takes 9 % more than its name says. Compared are all parameters, those that a "
    "runtime builds, and those without the embeddings; more than 5 % from each of them is told, and more than 50 % is a warning.",
    fix="name the repository after its count, or leave it and ignore this",
    check=check,
)
