"""Findings as SARIF 2.1.0 (OASIS), for code scanning and editors."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hubaudit._version import __version__
from hubaudit.findings import rules
from hubaudit.report.json_text import json_text
from hubaudit.report.phrases import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.errors import HubauditError
    from hubaudit.findings.rule import Rule
    from hubaudit.types import Finding, Report, Subject

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
#: What GitHub sorts rules by: a score of 0 to 10 for those on security, else the level.
_SECURITY = {"suspicious-pickle": "9.0", "remote-code": "6.0", "unpinned-revision": "4.0", "no-safetensors": "4.0"}


def to_sarif(results: Sequence[Report | tuple[str, HubauditError]]) -> str:
    """One run for all subjects. A subject that could not be audited is a notification, and the run no success."""
    known = rules()
    places = {rule.id: at for at, rule in enumerate(known)}
    reports = [result for result in results if not isinstance(result, tuple)]
    failures = [result for result in results if isinstance(result, tuple)]
    run = {
        "tool": {
            "driver": {
                "name": "hubaudit",
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in known],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not failures,
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "descriptor": {"id": error.kind},
                        "message": {"text": _plain(f"{name}: {error.message}")},
                    }
                    for name, error in failures
                ],
            }
        ],
        "results": [
            _result(finding, report.subject, places[finding.rule]) for report in reports for finding in report.findings
        ],
    }
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _plain(text: str) -> str:
    """Text of which no part is a link: ``[words](address)`` is one in a message (SARIF 2.1.0, 3.11.6), and names are a stranger's."""
    return clean(text).replace("](", "] (")


def file_of(finding: Finding, subject: Subject) -> str:
    """The file of a finding as one reads it from the folder one works in: below the audited folder where that is on this machine.

    What is not in a file of the repository (its name, say) is told of its config.
    """
    path = finding.where.partition("#")[0]
    if path.startswith(("header:", "default:", "rule:")) or path == subject.repo_id:
        path = "config.json"
    if subject.source != "local" or subject.repo_id in ("", "."):
        return path
    folder = subject.repo_id.replace("\\", "/").rstrip("/").removeprefix("./")
    return f"{folder}/{path}" if not folder.endswith(path) else folder


def _rule(rule: Rule) -> dict[str, Any]:
    properties: dict[str, Any] = {"tags": ["models"]}
    if rule.id in _SECURITY:
        properties = {"tags": ["models", "security"], "security-severity": _SECURITY[rule.id]}
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.about},
        "help": {"text": f"{rule.about}\n\nWhat to do: {rule.fix}."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": properties,
    }


def _result(finding: Finding, subject: Subject, rule_index: int) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(file_of(finding, subject), errors="surrogatepass")}}
    if finding.line is not None:
        place["region"] = {"startLine": finding.line}
    location: dict[str, Any] = {"physicalLocation": place}
    field = finding.where.partition("#")[2]
    if field:
        location["logicalLocations"] = [{"fullyQualifiedName": clean(field), "kind": "member"}]
    about = _plain(f"{subject.repo_id}: {finding.message} ({finding.help})")
    # The same fault of the same repository is the same alert, wherever its line moves.
    print_of = sha256(
        "\0".join((subject.repo_id, finding.rule, finding.where, finding.message)).encode("utf-8", "surrogatepass")
    )
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": about},
        "locations": [location],
        "partialFingerprints": {"hubauditFinding/v1": print_of.hexdigest()[:32]},
        "properties": {"repo_id": clean(subject.repo_id), "commit": subject.commit},
    }
