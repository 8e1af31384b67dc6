"""A context length on the model card that the config does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.claims import CARD, claimed
from hubaudit.findings.context import longest_context
from hubaudit.findings.counts import TOLERANCE
from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each claim above what positions and rope scaling allow. A shorter claim is an advice, and no contradiction."""
    longest = longest_context(snapshot, facts)
    if longest.value is None or facts.library == "peft":
        return
    for claim in claimed(snapshot, "context_tokens"):
        if claim.low > longest.value * (1 + TOLERANCE):
            yield RULE.found(
                f"the card says {shown(claim.text)} of context, the config has {longest.value:,} positions ({longest.where})",
                where=CARD,
                line=claim.line,
            )


RULE = Rule(
    id="card-context",
    severity="warning",
    title="the card says a longer context than the config",
    about="Engines take max_position_embeddings, stretched by the rope scaling that the config declares, for the longest context; they refuse or warn "
    "beyond it. A context that needs a setting which is not in the config must be told with that setting.",
    fix="correct the card, or put the rope scaling that it needs into config.json",
    check=check,
)
