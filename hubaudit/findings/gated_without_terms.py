"""A repository that one must ask for access to, and that does not say on what terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.terms import licence_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for a gated repository without a gate text, a licence or a link to one."""
    terms = snapshot.terms
    if terms is None or not terms.gated:
        return
    if not terms.gate_text and terms.licence is None and terms.licence_link is None and licence_file(snapshot) is None:
        yield RULE.found(
            "access must be asked for, and nothing says on what terms", where="README.md#extra_gated_prompt"
        )


RULE = Rule(
    id="gated-without-terms",
    severity="warning",
    title="gated, and no terms",
    about="Who asks for access agrees to something: extra_gated_prompt, a licence or a link in the card's header, or a LICENSE file says to what. "
    "Whether a repository is gated only the Hub tells, so folders are not checked.",
    fix="add extra_gated_prompt or a licence to the header of README.md",
    check=check,
)
