"""The config names another width than the embedding has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "hidden_size")


RULE = Rule(
    id="hidden-size-mismatch",
    severity="error",
    title="another hidden size in the files than in the config",
    about="The embedding's columns are the model's width: the weights cannot be loaded into what the config describes.",
    fix="the config belongs to other weights",
    check=check,
)
