"""A file that ends before what its header announces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each such file."""
    for problem in snapshot.problems:
        if problem.kind == "truncated":
            yield RULE.found(f"`{problem.path}`: {problem.reason}", where=problem.path)


RULE = Rule(
    id="truncated-file",
    severity="error",
    title="a file that was cut off",
    about="Header and tensors need more bytes than the file has: the upload or the copy broke off, and every loader fails on it or reads rubbish.",
    fix="upload the file again; figures leave it out",
    check=check,
)
