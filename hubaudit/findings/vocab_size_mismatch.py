"""The config names another vocabulary than the embedding has rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "vocab_size")


RULE = Rule(
    id="vocab-size-mismatch",
    severity="warning",
    title="another vocabulary in the files than in the config",
    about="Loading fails on the shape, or, with ignore_mismatched_sizes, leaves an embedding of random weights.",
    fix="set vocab_size to the rows of the embedding",
    check=check,
)
