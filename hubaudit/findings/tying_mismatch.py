"""The config unties embedding and head, and no head is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "tied embeddings")


RULE = Rule(
    id="tying-mismatch",
    severity="warning",
    title="untied embeddings by the config, and no head in the files",
    about="A loader that believes the config makes a new head with random weights. Where a tied head is stored once more, that is no contradiction.",
    fix="set tie_word_embeddings to what the files hold",
    check=check,
)
