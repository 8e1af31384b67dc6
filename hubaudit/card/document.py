"""A card's bytes: its encoding and line endings, the marked section in it, and the same bytes with another section.

Everything outside the markers comes back to the byte: what is not understood is not touched.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import islice, takewhile
from operator import eq
from typing import TYPE_CHECKING

from hubaudit.errors import CannotAuditError
from hubaudit.formats.card_text import BEGIN, END
from hubaudit.report.phrases import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_BOMS = ((BOM_UTF8, "utf-8"), (BOM_UTF16_LE, "utf-16-le"), (BOM_UTF16_BE, "utf-16-be"))
_NEWLINE = re.compile(r"\r\n|\r|\n")
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_ATTRIBUTE = re.compile(r"([a-z]+)=([^\s=]+)")
_MAX_SHOWN = 500
_CONTEXT = 3
#: Our sections have some thirty lines; what stands between two markers may be anything.
_MAX_COMPARED = 2_000
_MAX_LINES = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card as it was read.

    ``text`` keeps its own line ``newline``s, ``bom`` stands before it. ``start`` and ``stop`` bound the marked section in ``text``, markers included;
    equal where there is none. ``attributes`` are those of the opening marker.
    """

    text: str
    encoding: str
    bom: bytes
    newline: str
    start: int
    stop: int
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_section(self) -> bool:
        """Whether the markers are there."""
        return self.stop > self.start

    def to_bytes(self) -> bytes:
        """The file again."""
        return self.bom + self.text.encode(self.encoding)


def parse_card(content: bytes, path: str) -> Card:
    """A card's text with its encoding (UTF-8, UTF-16 by its mark, else bytes taken one by one as latin-1).

    Raises:
        CannotAuditError: one marker without the other, or two sections; or the mark of UTF-16 before what is none.
    """
    bom, encoding = next(((bom, name) for bom, name in _BOMS if content.startswith(bom)), (b"", "utf-8"))
    body = content[len(bom) :]
    try:
        text = body.decode(encoding)
        is_same = text.encode(encoding) == body
    except UnicodeError:
        is_same = False
    if not is_same and bom in (
        BOM_UTF16_LE,
        BOM_UTF16_BE,
    ):  # with a section of ASCII behind it, it would be read as something else
        raise CannotAuditError(f"`{path}` begins as UTF-16 and is none", hint="save it as UTF-8")
    if not is_same:
        bom, encoding, text = b"", "latin-1", content.decode("latin-1")
    newlines = Counter(_NEWLINE.findall(text))
    newline = newlines.most_common(1)[0][0] if newlines else "\n"
    start, stop, attributes = _section(text, path)
    return Card(text=text, encoding=encoding, bom=bom, newline=newline, start=start, stop=stop, attributes=attributes)


def with_section(card: Card, section: str, path: str) -> Card:
    r"""The card with ``section`` (ASCII, lines ended by ``\n``, markers included) in the place of its own, or at its end where it has none.

    Raises:
        CannotAuditError: the card ends inside a block of code, in which the section would be code too, and not be found again.
    """
    own = section.rstrip("\n").replace("\n", card.newline)
    if card.has_section:
        text = card.text[: card.start] + own + card.text[card.stop :]
    else:
        text = card.text + _gap(card) + own + card.newline
    written = parse_card(card.bom + text.encode(card.encoding), path)
    if not written.has_section:
        raise CannotAuditError(
            f"`{path}` ends inside a block of code", hint="close the block, with the marks that open it"
        )
    return written


def diff(old: Card, new: Card, path: str) -> str:
    r"""A unified diff of the two to be read: its lines end with ``\n`` whatever theirs are, what would move a terminal's cursor is escaped, and endless lines are cut.

    So is a diff of more than some thousand lines, with a line that says so.
    """
    first, *both = _different(*(card.text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for card in (old, new)))
    before, after = ([f"{line}\n" for line in lines] for lines in both)
    made = list(islice(_compared(before, after, f"a/{clean(path)}", f"b/{clean(path)}"), _MAX_LINES + 1))
    lines = "".join(_moved(line, first) for line in made[:_MAX_LINES]).split("\n")
    lines[-1:] = ["\\ more lines than are shown", ""] if len(made) > _MAX_LINES else [""]
    return "\n".join("\t".join(map(clean, _cut(line).split("\t"))) for line in lines) if made else ""


def _different(before: list[str], after: list[str]) -> tuple[int, list[str], list[str]]:
    """The lines from shortly before the first that differs to shortly behind the last, and how many stand before them.

    A card differs in its section only, and what looks for the longest run of equal lines takes seconds for a card of 10 MB.
    """
    shorter = min(len(before), len(after))
    equal = _alike(before, after)
    behind = min(_alike(reversed(before), reversed(after)), shorter - equal)
    first, last = max(0, equal - _CONTEXT), max(0, behind - _CONTEXT)
    return first, before[first : len(before) - last], after[first : len(after) - last]


def _alike(before: Iterable[str], after: Iterable[str]) -> int:
    """How many lines are equal until the first that is not."""
    return sum(1 for _ in takewhile(bool, map(eq, before, after)))


def _compared(before: list[str], after: list[str], old: str, new: str) -> Iterator[str]:
    """Line by line; where there are too many, all of the one and all of the other."""
    if max(len(before), len(after)) <= _MAX_COMPARED:
        yield from unified_diff(before, after, old, new, n=_CONTEXT)
        return
    yield from (f"--- {old}\n", f"+++ {new}\n", f"@@ -1,{len(before)} +1,{len(after)} @@\n")
    yield from (f"-{line}" for line in before)
    yield from (f"+{line}" for line in after)


def _moved(line: str, count: int) -> str:
    """A line of the diff, with the numbers of the hunk that it begins counted from ``count`` lines before."""
    if not line.startswith("@@"):
        return line
    return re.sub(r"(?<= [-+])\d+", lambda found: str(int(found[0]) + count), line)


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 3]}..."


def _gap(card: Card) -> str:
    """What must stand between the end of a card and a section: an empty line."""
    if not card.text:
        return ""
    ends = len(card.text) - len(card.text.rstrip("\r\n"))
    lines = len(_NEWLINE.findall(card.text[len(card.text) - ends :])) if ends else 0
    return card.newline * max(0, 2 - lines)


def _section(text: str, path: str) -> tuple[int, int, dict[str, str]]:
    """Where the section is. Markers in a block of code are somebody's example."""
    starts, ends = [], []
    fence: str | None = None
    at = 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text):
        found = _FENCE.match(line)
        if found is not None and (fence is None or found[1].startswith(fence)):
            fence = found[1] if fence is None else None
        elif fence is None and line.startswith(BEGIN):
            starts.append((at, line))
        elif fence is None and line.startswith(END):
            ends.append(at + len(line.rstrip("\r\n")))
        at += len(line)
    if not starts and not ends:
        return 0, 0, {}
    if len(starts) != 1 or len(ends) != 1 or ends[0] < starts[0][0]:
        raise CannotAuditError(
            f"`{path}`: {len(starts)} opening and {len(ends)} closing markers of hubaudit",
            hint=f"leave one pair, `{BEGIN} … -->` before `{END} -->`, or none",
        )
    start, opening = starts[0]
    return start, ends[0], dict(_ATTRIBUTE.findall(opening))
