"""A parameter count on the model card that is not the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.claims import CARD, claimed
from hubaudit.findings.counts import is_near, known_counts
from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown
from hubaudit.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each claim that is more than 5 % from every count of the model."""
    count = facts.parameters
    if count is None or facts.library == "peft":
        return
    active = () if count.active is None else (count.active,)
    for claim in claimed(snapshot, "parameters", "active_parameters"):
        is_active = claim.kind == "active_parameters"
        known = active if is_active else (*known_counts(facts), *active)
        if known and not any(is_near(number, claim.low) for number in known):
            own = known[0]
            yield RULE.found(
                f"the card says {shown(claim.text)}, the model has {format_count(own)} {'active ' if is_active else ''}parameters "
                f"({claim.low / own - 1:+.0%})",
                where=CARD,
                line=claim.line,
            )


RULE = Rule(
    id="card-parameters",
    severity="warning",
    title="the card says another number of parameters",
    about="A claim in a table, a “Key: value” line or a plain sentence of README.md, against the exact count: all parameters, those a runtime builds, "
    "those without the embeddings, those active for one token. More than 5 % from each of them is told.",
    fix="write the exact count: `hubaudit card README.md --write` keeps one up to date",
    check=check,
)
