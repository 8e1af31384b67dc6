"""What was fuzzed, as docs/security.md shows it: `python tests/fuzz/record.py` writes the table anew from fixtures/fuzz/record.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "tests") not in sys.path:
    sys.path.insert(0, str(ROOT / "tests"))

from fuzz.registry import MODULES  # noqa: E402

RECORD = ROOT / "fixtures" / "fuzz" / "record.json"
PAGE = ROOT / "docs" / "security.md"
_BEGIN, _END = "<!-- fuzzing:begin -->", "<!-- fuzzing:end -->"


def table(record: dict[str, Any]) -> str:
    """Cases, time and memory of each target over all its runs, those that have none too, and what was found."""
    rows = ["| target | cases | last run | slowest case | peak memory |", "|---|---:|---|---:|---:|"]
    rows += [
        _row(name, [row for row in record["runs"] if row["target"] == name])
        for names in MODULES.values()
        for name in names
    ]
    total = sum(row["cases"] for row in record["runs"])
    engines = ", ".join(sorted({f"{row['engine']} on Python {row['python']}" for row in record["runs"]}))
    said = f"{total:,} cases so far ({engines}; the memory is the whole process's, the times are of a busy machine)."
    found = [
        "What was found, all mended:",
        "",
        *(f"- `{one['target']}`: {one['what']}. Now: {one['mended']}." for one in record["found"]),
    ]
    return "\n".join([said, "", *rows, "", *found])


def _row(name: str, runs: list[dict[str, Any]]) -> str:
    if not runs:
        return f"| `{name}` | 0 | by hypothesis only | | |"
    slowest = max(row["slowest_seconds"] for row in runs)
    cells = (
        f"{sum(row['cases'] for row in runs):,}",
        max(row["date"] for row in runs),
        "under 1 s" if slowest == 0 else f"{slowest} s",
        f"{max(row['peak_mb'] for row in runs)} MB",
    )
    return f"| `{name}` | {' | '.join(cells)} |"


def page_with_table(page: str, record: dict[str, Any]) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{table(record)}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8"), json.loads(RECORD.read_text())), encoding="utf-8")
