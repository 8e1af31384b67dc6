"""A shard that no index names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each such file."""
    for problem in snapshot.problems:
        if problem.kind == "unreferenced":
            yield RULE.found(f"`{problem.path}`: {problem.reason}", where=problem.path)


RULE = Rule(
    id="unreferenced-shard",
    severity="warning",
    title="a shard that the index does not name",
    about="Loaders never open it; it is downloaded and stored for nothing, or the index is an old one.",
    fix="delete the file, or write the index anew",
    check=check,
)
