"""The text of a Markdown card, taken apart: its lines with their numbers, what is no prose left out, and its tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Around the section that hubaudit writes into a card.
BEGIN, END = "<!-- hubaudit:begin", "<!-- hubaudit:end"
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
_RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$")
_MAX_LINES = 20_000
_MAX_CHARACTERS = 2_000
_MARKUP = re.compile(r"<[^<>]{0,200}>|!\[[^\]]{0,200}\]\([^)]{0,300}\)")
_LINK = re.compile(r"\[([^\]]{0,200})\]\([^)]{0,300}\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a card, counted from 1, without links and tags."""

    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: the cells of its head, and its rows with the line that each stands on."""

    head: tuple[str, ...]
    rows: tuple[tuple[Line, tuple[str, ...]], ...]
    lines: tuple[Line, ...]


def card_lines(card: str) -> tuple[Line, ...]:
    """The lines that say something: without the YAML header, code, comments, and the section that hubaudit wrote."""
    kept: list[Line] = []
    until: str | None = None
    for number, text in enumerate(card.splitlines()[:_MAX_LINES], 1):
        if until is not None:
            until = None if _ends(text, until) else until
            continue
        until = _opens(number, text)
        if until is None and "<!--" not in text:
            plain = _LINK.sub(r"\1", _MARKUP.sub(" ", text[:_MAX_CHARACTERS]))
            kept.append(Line(number=number, text=plain))
    return tuple(kept)


def tables(lines: Sequence[Line]) -> tuple[Table, ...]:
    """The tables among these lines: a row of heads, a row of dashes, and the rows below them."""
    found: list[Table] = []
    at = 1
    while at < len(lines):
        if "|" in lines[at - 1].text and _RULE.match(lines[at].text) and "|" in lines[at].text:
            end = at + 1
            while end < len(lines) and "|" in lines[end].text and lines[end].number == lines[end - 1].number + 1:
                end += 1
            rows = tuple((line, _cells(line.text)) for line in lines[at + 1 : end])
            found.append(Table(head=_cells(lines[at - 1].text), rows=rows, lines=tuple(lines[at - 1 : end])))
            at = end
        at += 1
    return tuple(found)


def _opens(number: int, text: str) -> str | None:
    """What ends the part that begins on this line and is not read; ``None`` where none begins."""
    if number == 1 and text.strip().lstrip("\ufeff") == "---":
        return "---"
    fence = _FENCE.match(text)
    if fence is not None:
        return fence[1]
    if BEGIN in text:
        return END
    if "<!--" in text and "-->" not in text.partition("<!--")[2]:
        return "-->"
    return None


def _ends(text: str, until: str) -> bool:
    if until in ("-->", END):
        return until in text
    stripped = text.strip()
    return stripped.startswith(until) and not stripped.strip(until[0])


def _cells(text: str) -> tuple[str, ...]:
    text = text.strip()
    text = text[1:] if text.startswith("|") else text
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return tuple(cell.replace("\\|", "|").strip(" *_`") for cell in re.split(r"(?<!\\)\|", text))
