"""A tokenizer that lets through more tokens than the model has positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.context import longest_context
from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding where ``model_max_length`` is above what config and rope scaling allow."""
    if snapshot.tokenizer is None or facts.library == "peft":
        return
    said, longest = snapshot.tokenizer.max_tokens, longest_context(snapshot, facts)
    if said.value is not None and longest.value is not None and said.value > longest.value:
        yield RULE.found(
            f"the tokenizer cuts texts at {said.value:,} tokens, the model has {longest.value:,} positions ({longest.where})",
            where=said.where,
        )


RULE = Rule(
    id="tokenizer-max-length",
    severity="warning",
    title="model_max_length beyond the model's positions",
    about="Whoever relies on the tokenizer's truncation gets texts that are longer than the model was made for: an index error with learned "
    "positions, quietly worse answers with rotary ones. Checked for folders, as the tokenizer's other figures.",
    fix="set model_max_length in tokenizer_config.json to the model's context",
    check=check,
)
