"""What the text of a model card claims of its model: parameters, context, dtype and memory, each with the line it stands on.

A card speaks of many things, and of other models too. A claim is taken where the text says plainly what it is about: a row or column of a table, a
"Key: value" line, or a sentence with one figure in it and no comparison. What is doubtful is left out: a claim that is missed costs nothing, and one
that is not the card's would be a false alarm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hubaudit.formats.card_text import Line, Table, card_lines, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["parameters", "active_parameters", "context_tokens", "memory_bytes", "dtype"]

#: What a key, or a column's head, is about; the first that matches counts, and `None` is for those that are about something else.
_KEYS: tuple[tuple[re.Pattern[str], Kind | None], ...] = (
    (re.compile(r"non-?\s?embedding|\b(?:train|fine-?tun|optimi[sz]er|dataset|draft|vision|encoder)", re.I), None),
    (re.compile(r"\bactiv\w* param|\bparam\w* activ|\bactivated\b", re.I), "active_parameters"),
    (re.compile(r"\bparam(?:eter|s\b)|^(?:model )?size$", re.I), "parameters"),
    (
        re.compile(r"\bcontext\b|\bmax(?:imum)? (?:sequence|position)|\bsequence length\b|\bmax length\b", re.I),
        "context_tokens",
    ),
    (re.compile(r"\bv?ram\b|\bgpu memory\b|\bmemory (?:requirement|usage|footprint|needed)", re.I), "memory_bytes"),
    (re.compile(r"\btensor type\b|^(?:weights? )?precision$|\bd-?type\b|\bdata type\b|^weights? type$", re.I), "dtype"),
)
_UNITS = {
    "t": 10**12, "trillion": 10**12, "b": 10**9, "bn": 10**9, "billion": 10**9, "m": 10**6, "million": 10**6, "k": 10**3, "thousand": 10**3,
}  # fmt: skip
_NUMBER = r"(?<![\w.,$-])~?(?P<number>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15}(?:\.[0-9]{1,4})?)"
_COUNT = re.compile(_NUMBER + r"(?:\s*-?(?P<unit>trillion|billion|million|thousand|bn|[TBMK])(?![A-Za-z0-9]))?", re.I)
_TOKENS = re.compile(_NUMBER + r"\s*(?P<unit>[km])?(?:[\s-]*tokens?)?(?![A-Za-z0-9%]|\.[0-9])", re.I)
_MEMORY = re.compile(_NUMBER + r"\s*(?P<unit>GiB|GB|MiB|MB|TB|TiB|G)(?![A-Za-z0-9/])", re.I)
_BYTES = {"gib": 2**30, "gb": 10**9, "g": 10**9, "mib": 2**20, "mb": 10**6, "tb": 10**12, "tib": 2**40}
#: Spellings of dtypes, by the name that safetensors has for them; bit widths of quantized weights.
_DTYPES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.I), name)
    for words, name in (
        ("bf16|bfloat16", "BF16"),
        ("fp16|float16|f16|half[- ]precision|half", "F16"),
        ("fp32|float32|f32|full[- ]precision|single[- ]precision", "F32"),
        ("fp8|float8|f8(?:_e4m3|_e5m2)?", "8 bits"),
        ("int8|q8(?:_0)?|w8a(?:8|16)|8[- ]?bits?", "8 bits"),
        ("int4|nf4|fp4|mxfp4|nvfp4|q4(?:_[0-9k](?:_[sml])?)?|w4a(?:8|16)|4[- ]?bits?|awq|gptq", "4 bits"),
    )
)
_PROSE_PARAMETERS = re.compile(
    r"(?<![\w.,-])(?P<number>[0-9]{1,4}(?:\.[0-9]{1,3})?)(?:\s*-?)(?P<unit>trillion|billion|million|[TBM])[\s-]+(?:total\s+)?parameters?\b",
    re.I,
)
_PROSE_CONTEXT = (
    re.compile(
        rf"\bcontext (?:length|window|size)s? (?:of|is|up to|supports?)\s+(?:up to\s+|about\s+)?{_NUMBER}\s*(?P<unit>[km])?(?![A-Za-z0-9%]|\.[0-9])",
        re.I,
    ),
    re.compile(rf"{_NUMBER}\s*(?P<unit>[km])?[\s-]*(?:tokens?)?[\s-]+context\b", re.I),
)
_PROSE_MEMORY = re.compile(
    rf"\b(?:requires?|needs?|fits?|runs? (?:in|on|with)|uses?|at least|minimum)\b[^.;|]{{0,60}}?{_NUMBER}\s*(?P<unit>[GM]i?B)[^.;|]{{0,25}}?\b(?:vram|gpu memory|of memory|gpu ram)\b",
    re.I,
)
#: Words with which a line speaks of something else, or of several things at once.
_COMPARES = re.compile(
    r"\b(?:than|outperform\w*|compar\w+|versus|vs\.?|rang\w+|series|famil\w+|sizes|variants|teacher|from .* to|between)\b|/",
    re.I,
)
_STRETCHES = re.compile(r"\b(?:yarn|rope|extrapolat\w+|extend\w*|train\w*|output|generat\w+)\b", re.I)
_TRAINS = re.compile(r"\b(?:train\w*|fine-?tun\w*|lora|kv[- ]cache|per token|system ram|disk|download)\b", re.I)
_KEY_VALUE = re.compile(
    r"^\s*(?:[-*+]\s+|\d+\.\s+)?(?:\*\*|__)?(?P<key>[^:：|*_]{2,50}?)(?:\*\*|__)?\s*[:：]\s*(?:\*\*|__)?\s*(?P<value>\S.*)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim: ``low`` and ``high`` bound the figure (a "32k" may be 32,000 or 32,768), ``dtype`` is the precision that it is about, if any.

    ``line`` is counted from 1 in the whole card; ``text`` is the words that make the claim.
    """

    kind: Kind
    low: int
    high: int
    line: int
    text: str
    dtype: str | None = None


def claims_of(card: str, name: str = "") -> tuple[Claim, ...]:
    """All claims of a card, in its order, each said on a line once.

    Args:
        card: the text of README.md, its YAML header included. The header, code blocks, comments, and the section that hubaudit itself writes are
            not read.
        name: the model's own name, to find its row among those of others in a table.
    """
    lines = card_lines(card)
    in_tables = {line.number for table in tables(lines) for line in table.lines}
    found = [claim for table in tables(lines) for claim in _of_table(table, name.rpartition("/")[2])]
    for line in lines:
        if line.number not in in_tables:
            found += _of_line(line)
    return tuple(sorted(dict.fromkeys(found), key=lambda claim: (claim.line, claim.kind, claim.low)))


def dtype_named(text: str) -> str | None:
    """The one dtype or width that a text names; ``None`` where it names none, or several."""
    names = {name for pattern, name in _DTYPES if pattern.search(text)}
    return names.pop() if len(names) == 1 else None


# --- tables --------------------------------------------------------------------------------------------------------------


def _of_table(table: Table, name: str) -> Iterator[Claim]:
    kinds = [_kind_of(head) for head in table.head]
    if len(kinds) == 2 and kinds[1] is None:
        kinds[0] = None  # a pair like any other of the table
    rows = _own_rows(table, name)
    for line, cells in rows:
        for kind, head, cell in zip(kinds, table.head, cells, strict=False):
            if kind is not None:
                yield from _with_dtype(_values(kind, cell, line), f"{cells[0]} {head}")
    column = _own_column(table, name)
    is_pairs = column == 1 and len(table.head) == 2 and kinds[1] is None
    if any(kind is not None for kind in kinds) and not is_pairs:
        return
    for line, cells in ((table.lines[0], table.head), *table.rows) if is_pairs else table.rows:
        kind = _kind_of(cells[0]) if cells else None
        if kind is not None and column is not None and column < len(cells):
            yield from _with_dtype(_values(kind, cells[column], line), cells[0])


def _own_rows(table: Table, name: str) -> list[tuple[Line, tuple[str, ...]]]:
    """The rows that are about this model: its own among those of several, or all where the first column names precisions."""
    rows = [(line, cells) for line, cells in table.rows if cells]
    if len(rows) == 1 or (rows and all(dtype_named(cells[0]) for _, cells in rows)):
        return rows
    return [(line, cells) for line, cells in rows if _is_name(cells[0], name)]


def _own_column(table: Table, name: str) -> int | None:
    """Where the values stand in a table of properties: its only other column, or the one that bears the model's name."""
    if len(table.head) == 2:
        return 1
    return next((at for at, head in enumerate(table.head) if at and _is_name(head, name)), None)


def _is_name(cell: str, name: str) -> bool:
    own, said = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (name, cell.rpartition("/")[2]))
    return bool(own) and own == said


def _with_dtype(claims: Iterator[Claim], context: str) -> Iterator[Claim]:
    for claim in claims:
        yield claim if claim.dtype or claim.kind != "memory_bytes" else replace(claim, dtype=dtype_named(context))


def _kind_of(key: str) -> Kind | None:
    if len(key) > 60:
        return None
    return next((kind for pattern, kind in _KEYS if pattern.search(key.strip(" *_`#"))), None)


# --- lines ---------------------------------------------------------------------------------------------------------------


def _of_line(line: Line) -> Iterator[Claim]:
    pair = _KEY_VALUE.match(line.text)
    kind = None if pair is None else _kind_of(pair["key"])
    if pair is not None and kind is not None:
        if not (kind == "memory_bytes" and _TRAINS.search(line.text)):
            yield from _with_dtype(_values(kind, pair["value"], line), line.text)
        return
    yield from _of_prose(line)


def _of_prose(line: Line) -> Iterator[Claim]:
    for sentence in re.split(r"(?<=[.!?;])\s+", line.text):
        if _COMPARES.search(sentence):
            continue
        counts = list(_PROSE_PARAMETERS.finditer(sentence))
        if len(counts) == 1 and not re.search(r"\bactiv|non-?embedding", sentence, re.I):
            yield _claim("parameters", counts[0], line, _UNITS)
        contexts = {match["number"]: match for pattern in _PROSE_CONTEXT for match in pattern.finditer(sentence)}
        if len(contexts) == 1 and not _STRETCHES.search(sentence):
            yield from _tokens(next(iter(contexts.values())), line)
        memory = list(_PROSE_MEMORY.finditer(sentence))
        if len(memory) == 1 and not _TRAINS.search(sentence):
            yield replace(_claim("memory_bytes", memory[0], line, _BYTES), dtype=dtype_named(sentence))


# --- values --------------------------------------------------------------------------------------------------------------


def _values(kind: Kind, text: str, line: Line) -> Iterator[Claim]:
    """The figure in a cell or after a colon: only where there is one."""
    if kind == "dtype":
        name = dtype_named(text)
        if name is not None:
            yield Claim(kind=kind, low=0, high=0, line=line.number, text=_quoted(text), dtype=name)
        return
    if kind == "context_tokens":
        matches = [match for match in _TOKENS.finditer(text) if match["unit"] or _figure(match) >= 128]
        if len(matches) == 1 or (matches and not _COMPARES.search(text)):
            yield from _tokens(matches[0], line) if not _STRETCHES.search(text[: matches[0].start()]) else ()
        return
    if kind == "memory_bytes":
        matches = list(_MEMORY.finditer(text))
        if len(matches) == 1:
            yield replace(_claim(kind, matches[0], line, _BYTES), dtype=dtype_named(text))
        return
    matches = [match for match in _COUNT.finditer(text) if match["unit"] or _figure(match) >= 10**5]
    if matches and (len(matches) == 1 or "(" in text[: matches[1].start()]):  # "0.49B (non-embedding: 0.36B)"
        yield _claim(kind, matches[0], line, _UNITS)


def _tokens(match: re.Match[str], line: Line) -> Iterator[Claim]:
    unit = (match["unit"] or "").lower()
    figure = _figure(match)
    low, high = {"": (1, 1), "k": (1000, 1024), "m": (10**6, 2**20)}[unit]
    if figure * low >= 128:
        yield Claim(
            kind="context_tokens",
            low=int(figure * low),
            high=int(figure * high),
            line=line.number,
            text=_quoted(match[0]),
        )


def _claim(kind: Kind, match: re.Match[str], line: Line, units: dict[str, int]) -> Claim:
    value = round(_figure(match) * units.get((match["unit"] or "").lower(), 1))
    return Claim(kind=kind, low=value, high=value, line=line.number, text=_quoted(match[0]))


def _figure(match: re.Match[str]) -> float:
    return float(match["number"].replace(",", ""))


def _quoted(text: str) -> str:
    return " ".join(text.split())[:80]
