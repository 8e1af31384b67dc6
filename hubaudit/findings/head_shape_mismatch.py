"""Heads times head_dim is not the width of the projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.witness import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each model of the repository in which they differ."""
    return differences(RULE, facts, "attention_heads × head_dim", "kv_heads × head_dim")


RULE = Rule(
    id="head-shape-mismatch",
    severity="error",
    title="the attention projections have another width than heads × head_dim",
    about="Query, key and value projections have heads × head_dim rows (twice for gated queries). What the config says of heads decides the KV cache, so its size would be wrong too.",
    fix="check num_attention_heads, num_key_value_heads and head_dim",
    check=check,
)
