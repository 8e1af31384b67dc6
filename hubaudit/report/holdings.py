"""What a repository holds, in the words that every text form shares: bytes on disk and once loaded, its parts, and the weights not counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.report.phrases import clean
from hubaudit.units import format_bytes, format_count

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts, WeightSet

PARTS_HEAD = ("part", "parameters", "on disk", "resident", "class")
WEIGHTS_HEAD = ("weights", "files", "size", "first file")
MOST_ROWS = 40


def size_line(facts: ModelFacts) -> str:
    """Bytes on disk, bytes resident when loaded, and parameters that one token passes through; empty where none is known."""
    words = []
    if facts.file_bytes is not None:
        words.append(f"on disk {format_bytes(facts.file_bytes)}")
    if facts.resident_bytes is not None:
        words.append(f"resident {format_bytes(facts.resident_bytes)}")
    if facts.parameters is not None and facts.parameters.active is not None:
        is_all = facts.parameters.active == facts.parameters.loaded
        words.append("all parameters active" if is_all else f"active {format_count(facts.parameters.active)} per token")
    return " · ".join(words) if facts.file_bytes is not None or facts.resident_bytes is not None else ""


def part_rows(facts: ModelFacts) -> list[tuple[str, ...]]:
    """One row for each part of a pipeline, of a model of modules, or of an adapter with its base."""
    return [
        (
            clean(part.name or ""),
            "unknown" if part.parameters is None else f"{part.parameters.total:,}",
            _size(part.file_bytes),
            _size(part.resident_bytes),
            clean(part.architecture or part.model_type or part.library or ""),
        )
        for part in facts.components
    ]


def weights_rows(facts: ModelFacts) -> list[tuple[str, ...]]:
    """The weights that were read and, where there are more, those that were not: quantizations and formats side by side."""
    if not facts.other_weights:
        return []
    rows = [(f"{_label(one)} (read)", one) for one in facts.chosen] if len(facts.chosen) == 1 else []
    rows += [(f"{_label(one)}, {one.note}" if one.note else _label(one), one) for one in facts.other_weights]
    shown: list[tuple[str, ...]] = [
        (
            clean(label),
            str(len(one.files)),
            _size(one.size_bytes),
            clean(one.files[0] if one.files else one.index or ""),
        )
        for label, one in rows[:MOST_ROWS]
    ]
    left = len(rows) - len(shown)
    return shown + ([(f"and {left} more", "", "", "")] if left else [])


def _label(one: WeightSet) -> str:
    return f"{one.format} {one.variant}" if one.variant else one.format


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else format_bytes(size_bytes)
