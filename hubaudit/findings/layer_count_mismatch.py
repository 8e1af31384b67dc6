"""The config names another number of layers than the files hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "layers")


RULE = Rule(
    id="layer-count-mismatch",
    severity="error",
    title="another number of layers in the files than in the config",
    about="Missing layers are filled with random weights, and surplus ones are dropped, by loaders that only warn.",
    fix="set num_hidden_layers to the layers that the files hold",
    check=check,
)
