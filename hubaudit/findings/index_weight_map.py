"""An index names tensors that no shard has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "index weight_map")


RULE = Rule(
    id="index-weight-map",
    severity="error",
    title="the index names tensors that no shard has",
    about="Loaders look each tensor up in the map; one that is nowhere is filled with random weights or fails.",
    fix="upload the missing shards, or write the index anew",
    check=check,
)
