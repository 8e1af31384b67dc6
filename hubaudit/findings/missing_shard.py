"""A file that is named and not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each such file."""
    for problem in snapshot.problems:
        if problem.kind == "missing":
            yield RULE.found(f"`{problem.path}`: {problem.reason}", where=problem.path)


RULE = Rule(
    id="missing-shard",
    severity="error",
    title="a shard that is named and not there",
    about="The index, or the numbers in the names of the other shards, promise it. The model cannot be loaded, and its size is told from the config instead.",
    fix="upload the shard, or write the index anew",
    check=check,
)
