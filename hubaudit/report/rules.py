"""The rules themselves, told: a list, help pages, Markdown for the documentation, JSON."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.findings.rule import Rule

_WIDTH = 78


def to_list(rules: Sequence[Rule]) -> str:
    """One line a rule."""
    longest = max((len(rule.id) for rule in rules), default=0)
    return "".join(f"{rule.id:<{longest}}  {rule.severity:<7}  {rule.title}\n" for rule in rules)


def to_pages(rules: Sequence[Rule]) -> str:
    """The help page of each rule, for a terminal."""
    return "\n".join(
        "\n".join(
            (
                f"{rule.id} ({rule.severity}): {rule.title}",
                "",
                *_wrapped(rule.about),
                "",
                *_wrapped(f"fix: {rule.fix}"),
                "",
            )
        )
        for rule in rules
    )


def to_markdown(rules: Sequence[Rule]) -> str:
    """A page of all rules: a table, and a section each."""
    lines = ["| rule | severity | what is wrong |", "|---|---|---|"]
    lines += [f"| [`{rule.id}`](#{rule.id}) | {rule.severity} | {rule.title} |" for rule in rules]
    for rule in rules:
        lines += [
            "",
            f"## {rule.id}",
            "",
            f"**{rule.severity}** · {rule.title}",
            "",
            _safe(rule.about),
            "",
            f"**What to do:** {_safe(rule.fix)}.",
        ]
    return "\n".join(lines) + "\n"


def to_json(rules: Sequence[Rule]) -> str:
    """All that a rule says of itself."""
    rows = [
        {"rule": rule.id, "severity": rule.severity, "title": rule.title, "about": rule.about, "fix": rule.fix}
        for rule in rules
    ]
    return json.dumps(rows, ensure_ascii=False, indent=2) + "\n"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _safe(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
