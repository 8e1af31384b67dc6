"""What a rule is: a stable id, how bad its findings are, what it is about, and the check itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.types import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hubaudit.types import ModelFacts, RepoSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule, and its help page.

    ``id`` never changes; ``severity`` is that of its findings unless one says otherwise. ``title`` is what is wrong, ``about`` why it matters and how
    the rule knows, ``fix`` what to do.
    """

    id: str
    severity: Severity
    title: str
    about: str
    fix: str
    check: Callable[[RepoSnapshot, ModelFacts], Iterator[Finding]]

    def found(
        self, message: str, *, where: str, severity: Severity | None = None, fix: str = "", line: int | None = None
    ) -> Finding:
        """One finding of this rule."""
        return Finding(
            rule=self.id,
            severity=severity or self.severity,
            message=message,
            where=where,
            help=fix or self.fix,
            line=line,
        )
