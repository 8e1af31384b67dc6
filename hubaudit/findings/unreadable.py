"""A file that breaks its format's rules, is cut off, or is named and not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.types import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each file that could not be used."""
    for problem in snapshot.problems:
        yield Finding(
            rule="unreadable-file",
            severity="error",
            message=f"`{problem.path}`: {problem.reason}",
            where=problem.path,
            help="upload the file again; figures leave it out",
        )
