"""An index claims another total than its shards hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "index total_size")


RULE = Rule(
    id="index-total-size",
    severity="warning",
    title="the index claims another total size than its shards hold",
    about="metadata.total_size is what download planners and accelerate's device maps go by. A claim that is no whole number is no claim.",
    fix="write the index anew: save_pretrained does it",
    check=check,
)
