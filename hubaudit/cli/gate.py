"""Whether a run passes: which findings count, from the options and the project's own settings, and the exit code that says so."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hubaudit.errors import HubauditError
    from hubaudit.types import Report, Severity

F = TypeVar("F", bound="Callable[..., object]")

DOES_NOT_FIT = 10
HAS_FINDINGS = 12
FAIL_ON = ("fit", "warning", "error")
_RANK = {"error": 0, "warning": 1, "info": 2}


def gate_options(command: F) -> F:
    """What a run fails on, and which findings do not count."""
    for option in reversed(
        (
            click.option(
                "--fail-on",
                multiple=True,
                type=click.Choice(FAIL_ON),
                help="fit: exit with 10 where it does not fit on every one of --gpu and --memory, or that cannot be known. "
                "warning, error: exit with 12 where a finding is that bad. May be repeated.",
            ),
            click.option(
                "--ignore",
                multiple=True,
                metavar="RULE",
                help="Drop this rule's findings; `hubaudit rules` lists them.",
            ),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a run fails on, the rules that are ignored, and severities that the project sees otherwise."""

    fail_on: tuple[str, ...] = ()
    ignore: frozenset[str] = frozenset()
    severity: Mapping[str, str] = field(default_factory=dict)

    def applied(self, report: Report) -> Report:
        """The report with the findings that count, the worst first."""
        if not self.ignore and not self.severity:
            return report
        kept = [
            replace(finding, severity=cast("Severity", self.severity.get(finding.rule, finding.severity)))
            for finding in report.findings
            if finding.rule not in self.ignore
        ]
        kept.sort(key=lambda finding: _RANK[finding.severity])
        return replace(report, findings=tuple(kept))

    def exit_code(self, results: Iterable[Report | tuple[str, HubauditError]]) -> int:
        """0 where the run passes; what does not fit counts before what was found."""
        reports = [result for result in results if not isinstance(result, tuple)]
        verdicts = {fit.verdict for report in reports for fit in report.fit}
        return self.code_of(
            verdicts, [(finding.rule, finding.severity) for report in reports for finding in report.findings]
        )

    def code_of(self, verdicts: Iterable[str], found: Iterable[tuple[str, str]]) -> int:
        """The exit code for these verdicts and these findings by rule and severity."""
        if "fit" in self.fail_on and set(verdicts) - {"fits", "tight"}:
            return DOES_NOT_FIT
        limit = max((_RANK[name] for name in self.fail_on if name in _RANK), default=-1)
        counted = [self.severity.get(rule, severity) for rule, severity in found if rule not in self.ignore]
        return HAS_FINDINGS if min((_RANK[severity] for severity in counted), default=len(_RANK)) <= limit else 0
