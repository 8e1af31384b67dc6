"""The config names another dtype than the files hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "dtype")


RULE = Rule(
    id="dtype-mismatch",
    severity="warning",
    title="the config's dtype is not that of the files",
    about="Loaders convert to the config's dtype: a repository stored in float32 and declared as bfloat16 takes twice the disk and download of what is loaded. Only read from a config that says a dtype; quantized weights are left out.",
    fix="set the config's dtype to that of the files, or convert the files",
    check=check,
)
