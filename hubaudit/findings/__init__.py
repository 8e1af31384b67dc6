"""What is wrong with a repository: rules over its snapshot and facts, one rule a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings import disagreement, pickled, unread_section, unreadable

if TYPE_CHECKING:
    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

_RULES = (unreadable.check, pickled.check, unread_section.check, disagreement.check)
_RANK = {"error": 0, "warning": 1, "info": 2}


def find(snapshot: RepoSnapshot, facts: ModelFacts) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    found = [finding for rule in _RULES for finding in rule(snapshot, facts)]
    return tuple(sorted(found, key=lambda finding: (_RANK[finding.severity], finding.rule, finding.where)))
