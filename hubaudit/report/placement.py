"""Where `device_map="auto"` puts the modules of a model: a table of device, layers and bytes, with the slow part named."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from hubaudit.report.json_text import json_text
from hubaudit.report.phrases import clean
from hubaudit.report.tabular import escaped, table
from hubaudit.report.wire import head
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = ("device", "layers", "other modules", "bytes", "of at most")
_COLUMNS = 80
#: What a forward pass has to do for what is not on an accelerator (accelerate's hooks, AlignDevicesHook).
_SLOW = {
    "cpu": "copied to the accelerator anew in every forward pass",
    "disk": "read from the disk and copied to the accelerator anew in every forward pass",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What one device gets. ``device`` is the accelerator's number, ``cpu`` or ``disk``; ``limit_bytes`` is ``None`` where there is none.

    ``layers`` are the numbers of the layers, ``modules`` the names of all else.
    """

    device: str
    layers: tuple[int, ...]
    modules: tuple[str, ...]
    bytes: int
    limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A model's modules on all devices, and what was taken for granted."""

    architecture: str
    dtype: str
    rows: tuple[Placed, ...]
    assumptions: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """All tensors once."""
        return sum(row.bytes for row in self.rows)


def slow_part(placement: Placement) -> Iterator[str]:
    """What lies off the accelerators, and what that costs."""
    for row in placement.rows:
        if row.device in _SLOW:
            what = f"layers {_ranges(row.layers)}" if row.layers else "some modules"
            share = row.bytes * 100 // placement.total_bytes
            yield f"slow: {what} on {row.device}, {format_bytes(row.bytes)} ({share} %), {_SLOW[row.device]}"


def to_text(placement: Placement, title: str) -> str:
    """80 columns: the table, the slow part, the assumptions."""
    cells = [_HEAD, *_cells(placement)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(_HEAD))]
    widths[2] = max(5, min(widths[2], _COLUMNS - sum(widths) + widths[2] - 2 * (len(widths) - 1)))
    lines = [
        clean(title),
        f"  {clean(placement.architecture)}, {placement.dtype}, {format_bytes(placement.total_bytes)}",
        "",
    ]
    for row in cells:
        lines += _line(row, widths)
    lines += [""] if placement.assumptions or any(slow_part(placement)) else []
    for said in (*slow_part(placement), *placement.assumptions):
        lines += wrap(clean(said), _COLUMNS, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def to_markdown(placement: Placement, title: str) -> str:
    """The same as a section of a page."""
    lines = [f"## {escaped(title)}", "", f"{escaped(placement.architecture)}, {placement.dtype}", ""]
    lines += [*table(_HEAD, _cells(placement)), ""]
    lines += [f"- {escaped(said)}" for said in (*slow_part(placement), *placement.assumptions)]
    return "\n".join(lines) + "\n"


def to_json(placement: Placement, title: str) -> str:
    """Every row with all its names."""
    document = head(title) | {
        "placement": {
            "architecture": placement.architecture,
            "dtype": placement.dtype,
            "total_bytes": placement.total_bytes,
            "devices": [{name: getattr(row, name) for name in row.__slots__} for row in placement.rows],
            "slow": list(slow_part(placement)),
            "assumptions": list(placement.assumptions),
        }
    }
    return json_text(document, indent=2) + "\n"


def _cells(placement: Placement) -> list[tuple[str, ...]]:
    return [
        (
            row.device,
            _ranges(row.layers),
            clean(", ".join(row.modules)),
            format_bytes(row.bytes),
            "" if row.limit_bytes is None else format_bytes(row.limit_bytes),
        )
        for row in placement.rows
    ]


def _ranges(numbers: tuple[int, ...]) -> str:
    """``"0–3, 7"``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in found)


def _line(row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    """Names to the left, sizes to the right; long names go on below."""
    cells = [wrap(cell, width, break_on_hyphens=False) or [""] for cell, width in zip(row, widths, strict=True)]
    for at in range(max(map(len, cells))):
        words = [cell[at] if at < len(cell) else "" for cell in cells]
        said = (word.rjust(width) if column > 2 else word.ljust(width) for column, (word, width) in enumerate(zip(words, widths, strict=True)))  # fmt: skip
        yield "  ".join(said).rstrip()
