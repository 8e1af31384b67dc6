"""Annotations and the step summary: what GitHub reads, and what a hostile repository cannot write into it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from shapes import BASE, as_json
from small_repos import CONFIG

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import NotFoundError
from hubaudit.hub import fetch
from hubaudit.report.github import to_annotations, to_summary
from hubaudit.types import Finding, Hardware, Report, Workload

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = re.compile(r"::(error|warning|notice) ([a-zA-Z]+=[^,:]*(?:,[a-zA-Z]+=[^,:]*)*)::(.*)")


def audited(folder: Path, **changes: object) -> Report:
    """The small Llama with another config, on a device that is too small."""
    files = {**BASE, "LICENSE": b"MIT", "config.json": as_json({**CONFIG, **changes})}
    for path, content in files.items():
        (folder / path).write_bytes(content)
    return audit_snapshot(fetch(str(folder)), Workload(), (Hardware(name="tiny", usable_bytes=1),))


def with_findings(report: Report, *messages: str) -> Report:
    """The report with these findings."""
    return replace(
        report,
        findings=tuple(
            Finding(rule="remote-code", severity="error", message=one, where="a,b:c.json#x", help="h")
            for one in messages
        ),
    )


def test_each_finding_is_a_command(tmp_path: Path) -> None:
    """Errors first; each names its file, and a device that is too small is a warning."""
    lines = to_annotations([audited(tmp_path, num_key_value_heads=4), ("org/gone", NotFoundError("gone"))]).splitlines()
    parsed = [COMMAND.fullmatch(line) for line in lines]
    assert all(parsed)
    kinds = [found[1] for found in parsed if found]
    assert kinds == sorted(kinds, key=["error", "warning", "notice"].index)
    assert "does not fit" in "".join(lines)
    assert any(f"file={tmp_path}/config.json" in line for line in lines)


def test_a_message_ends_no_command(tmp_path: Path) -> None:
    """Line breaks, percents, colons and commas of a hostile name are escaped; nothing begins a second command."""
    hostile = "x\n::add-mask::secret\r\n::error::%0A\x1b[2J"
    text = to_annotations([with_findings(audited(tmp_path), hostile)])
    assert sum(line.startswith("::") for line in text.splitlines()) == len(text.splitlines()) == 2
    assert "\x1b" not in text
    assert "a%2Cb%3Ac.json" in text


def test_no_more_than_github_shows(tmp_path: Path) -> None:
    """Ten of a kind, and where the others are."""
    lines = to_annotations([with_findings(audited(tmp_path), *(f"m{number}" for number in range(25)))]).splitlines()
    assert sum(line.startswith("::error") for line in lines) == 10
    assert any("15 more" in line for line in lines)


def test_the_summary(tmp_path: Path) -> None:
    """A row, a bar whose parts add up, whether it fits, and the findings with what to do; what could not be audited is told."""
    text = to_summary([audited(tmp_path, num_key_value_heads=4), ("org/gone", NotFoundError("it is gone"))])
    assert "| model | parameters |" in text
    assert "tiny: no" in text
    assert "head-shape-mismatch" in text
    assert "it is gone" in text
    cells = [line.count("█") for line in text.splitlines() if re.match(r"\w+ +█* ", line)]
    assert 30 <= sum(cells) <= 45


def test_a_summary_is_no_page_of_the_repository(tmp_path: Path) -> None:
    """Markup in a name stays text, and a page that is too long is cut, not lost."""
    text = to_summary([with_findings(audited(tmp_path), "<img src=x> [a](b) | c")])
    assert "<img" not in text
    assert "](b)" not in text.replace("\\](b)", "")
    long = to_summary([with_findings(audited(tmp_path), "y" * 2_000_000)])
    assert len(long.encode()) <= 1_000_100
    assert "(cut:" in long
