"""A file that breaks its format's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each such file."""
    for problem in snapshot.problems:
        if problem.kind == "unreadable":
            yield RULE.found(f"`{problem.path}`: {problem.reason}", where=problem.path)


RULE = Rule(
    id="unreadable-file",
    severity="error",
    title="a file that breaks its format's rules",
    about="What the header or the JSON says cannot be so: overlapping tensors, impossible shapes, a path outside the repository, an old format. The audit leaves the file out and goes on.",
    fix="upload the file again; figures leave it out",
    check=check,
)
