"""A repository that names no licence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.findings.terms import licence_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding where neither the card's header nor a file says on what terms the weights may be used."""
    terms = snapshot.terms
    if terms is None or not snapshot.files:
        return
    file = licence_file(snapshot)
    if terms.licence is None and file is None:
        has_card = any(one.path == "README.md" for one in snapshot.files)
        yield RULE.found(
            "no licence: none in the card's header, and no LICENSE file"
            if has_card
            else "no model card, and no LICENSE file",
            where="README.md#license",
            severity=None if has_card or snapshot.source in ("hub", "cache") else "info",
        )
    elif terms.licence == "other" and file is None and terms.licence_link is None:
        yield RULE.found(
            "the licence is `other`, and neither license_link nor a LICENSE file says which",
            where="README.md#license_link",
            fix="add license_name and license_link to the card's header, or the text as LICENSE",
        )


RULE = Rule(
    id="licence-missing",
    severity="warning",
    title="no licence",
    about="Without a licence nobody but the author may use the weights. The Hub reads `license` in the header of README.md; a LICENSE file counts too. "
    "Not checked where nothing told the header: bundles of earlier versions, single files.",
    fix="write `license: …` into the header of README.md",
    check=check,
)
