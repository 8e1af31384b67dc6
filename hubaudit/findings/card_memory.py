"""A memory figure on the model card that the weights alone exceed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.claims import CARD, claimed
from hubaudit.findings.counts import TOLERANCE
from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

_BITS = {"F32": 32, "BF16": 16, "F16": 16, "8 bits": 8, "4 bits": 4}
_NARROWEST = 4


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each claim below the weights: at the dtype that it names, else at four bits, the narrowest that is in common use."""
    if facts.parameters is None or facts.library == "peft":
        return
    for claim in claimed(snapshot, "memory_bytes"):
        bits = _BITS.get(claim.dtype or "", _NARROWEST)
        least = facts.parameters.loaded * bits // 8
        if claim.high * (1 + TOLERANCE) < least:
            at = claim.dtype if claim.dtype in _BITS else f"{_NARROWEST} bits"
            yield RULE.found(
                f"the card says {shown(claim.text)}, the weights alone take {format_bytes(least)} at {at}",
                where=CARD,
                line=claim.line,
            )


RULE = Rule(
    id="card-memory",
    severity="warning",
    title="the card says less memory than the weights take",
    about="The weights are a lower bound of what a model needs; cache, activations and the CUDA context come on top. A figure below that bound cannot be "
    "right. One above it may be: how much more is needed depends on batch and context, which cards seldom say.",
    fix="`hubaudit card README.md --write` puts in figures with their batch and context",
    check=check,
)
