"""The catalogue of accelerators as text: a table for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from hubaudit._version import __version__
from hubaudit.fit.catalogue import Gpu
from hubaudit.report.wire import SCHEMA_VERSION
from hubaudit.units import format_gib

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = ("name", "vendor", "GiB", "usable GiB", "as told by")


def to_table(gpus: Iterable[Gpu]) -> str:
    """Plain columns, and a line that counts whose word the sizes are."""
    gpus = tuple(gpus)
    rows = [
        (gpu.name, gpu.vendor, str(gpu.memory_bytes >> 30), format_gib(gpu.usable_bytes), gpu.usable_source)
        for gpu in gpus
    ]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    lines = [_line(row, widths) for row in (_HEAD, *rows)]
    told = Counter(gpu.usable_source for gpu in gpus)
    summary = ", ".join(f"{source} {count}" for source, count in told.most_common())
    return "\n".join((*lines, "", f"{len(gpus)} accelerators, as told by {summary}", ""))


def to_json(gpus: Iterable[Gpu]) -> str:
    """Every field of every row, with the sources."""
    head = {"schema_version": SCHEMA_VERSION, "tool": {"name": "hubaudit", "version": __version__}}
    return json.dumps(head | {"gpus": [asdict(gpu) for gpu in gpus]}, ensure_ascii=False, indent=2) + "\n"


def to_csv(gpus: Iterable[Gpu]) -> str:
    """Every field of every row; the aliases of a row stand in one cell, separated by semicolons."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Gpu)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(gpu) | {"aliases": "; ".join(gpu.aliases)} for gpu in gpus)
    return text.getvalue()


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """Names to the left, numbers to the right, and no blanks at the end."""
    cells = (
        cell.rjust(width) if at in (2, 3) else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()
