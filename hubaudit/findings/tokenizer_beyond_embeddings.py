"""A tokenizer with ids for which the embedding has no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding where the largest token id lies beyond the vocabulary of the model."""
    if snapshot.tokenizer is None or facts.library == "peft":
        return
    tokens, rows = snapshot.tokenizer.tokens, facts.vocab_size
    if tokens.value is not None and rows.value is not None and tokens.value > rows.value:
        yield RULE.found(
            f"the tokenizer has ids up to {tokens.value - 1:,}, the embedding {rows.value:,} rows ({rows.where})",
            where=tokens.where,
        )


RULE = Rule(
    id="tokenizer-beyond-embeddings",
    severity="error",
    title="token ids beyond the embedding",
    about="A token whose id has no row in the embedding ends in an index error on the CPU and in a device-side assert on a GPU. The tokenizer's "
    "files are read where they lie on this machine; on the Hub that would be another question, so folders only are checked.",
    fix="call resize_token_embeddings before saving, or remove the added tokens",
    check=check,
)
