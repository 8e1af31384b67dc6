"""The layer plan for people and programs: a strip with one cell a layer, and what each kind of layer keeps."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from dataclasses import asdict, dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of, short_name
from hubaudit.report.json_text import json_text
from hubaudit.report.phrases import clean, identity
from hubaudit.report.wire import head
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hubaudit.types import CacheTensor, LayerSpec, ModelFacts, Subject

_KINDS = "layer_kinds.toml"
_CELLS_A_ROW = 50
_CELLS_A_GROUP = 10
_NOTHING = "."
_CONFIG = "config.json#"
_ASIDE = re.compile(r" \([^)]*\)")
_MOST_RANGES = 6
_GROWS = {
    "tokens": "a token",
    "prompt_tokens": "a token of the prompt",
    "new_tokens": "a generated token",
    "encoder_tokens": "a token of the encoder",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTensor:
    """One cached tensor of one layer and one sequence, in bytes: for an entry, or for the whole sequence where it does not grow."""

    name: str
    dtype: str
    bytes_per_entry: int
    fixed_bytes: int
    grows_with: str
    tokens_per_entry: int
    window_tokens: int | None
    unfinished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """Layers that keep the same: their cell in the strip, which they are, and what one of them keeps.

    ``bytes_per`` counts what grows without end, by what it grows with; ``bytes_at_most`` what is full once a window is; ``fixed_bytes`` what
    is there from the first token on. ``reads`` are the layers whose cache these read instead of an own one.
    """

    symbol: str
    kind: str
    meaning: str
    layers: tuple[int, ...]
    bytes_per: dict[str, int]
    bytes_at_most: int
    fixed_bytes: int
    tensors: tuple[KeptTensor, ...]
    reads: tuple[int, ...]
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Bytes of the whole cache of one sequence of so many tokens, by engine; ``None`` where an engine's is not known."""

    tokens: int
    bytes_by_runtime: dict[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMap:
    """A model's layers in order (``strip`` has one symbol for each) and the rows that explain the symbols."""

    subject: Subject
    facts: ModelFacts
    dtype: str
    strip: str
    rows: tuple[LayerRow, ...]
    lengths: tuple[Length, ...] = ()


def layer_map(subject: Subject, facts: ModelFacts, dtype: str, lengths: Iterable[Length] = ()) -> LayerMap:
    """Gather equal layers. ``dtype`` is what tensors without a dtype of their own are kept in."""
    plan = facts.layer_plan or ()
    alike: dict[tuple[str, tuple[CacheTensor, ...], bool], list[LayerSpec]] = {}
    for layer in plan:
        shares = layer.shares_cache_with is not None
        alike.setdefault((layer.kind, () if shares else layer.tensors, shares), []).append(layer)
    symbols = _symbols(alike)
    rows = tuple(_row(symbols[key], layers, dtype) for key, layers in alike.items())
    cells = {index: row.symbol for row in rows for index in row.layers}
    strip = "".join(cells[layer.index] for layer in plan)
    return LayerMap(subject=subject, facts=facts, dtype=dtype, strip=strip, rows=rows, lengths=tuple(lengths))


def to_text(found: LayerMap, width: int = 80, paint: Callable[[str, str], str] = lambda _, text: text) -> str:
    """The map as text of at most ``width`` columns; ``paint`` colours the text of one symbol."""
    at = f" at {found.subject.commit[:12]}" if found.subject.commit else ""
    lines = [clean(f"{found.subject.repo_id}{at}"), f"  {identity(found.facts)}", ""]
    lines += [f"Layers ({len(found.strip)}), sizes in {short_name(found.dtype)} as transformers caches", ""]
    lines += _strip_lines(found.strip, paint)
    for row in found.rows:
        lines += ["", *_row_lines(row, width, paint)]
    lines += ["", *_sum_lines(found, width)]
    return "\n".join(lines) + "\n"


def to_json(found: LayerMap) -> str:
    """The same for programs."""
    subject = found.subject
    document: dict[str, Any] = head(subject.repo_id) | {
        "subject": {
            "repo_id": subject.repo_id,
            "revision": subject.revision,
            "commit": subject.commit,
            "source": subject.source,
        },
        "model_type": found.facts.model_type,
        "architecture": found.facts.architecture,
        "dtype": short_name(found.dtype),
        "strip": found.strip,
        "kinds": [asdict(row) for row in found.rows],
        "lengths": [asdict(length) for length in found.lengths],
    }
    return json_text(document, indent=2) + "\n"


def _symbols(alike: dict[tuple[str, tuple[CacheTensor, ...], bool], list[LayerSpec]]) -> dict[Any, str]:
    """A letter for each row: the kind's own where it is free; a small one for layers that read the cache of that kind."""
    symbols: dict[Any, str] = {}
    for key in sorted(alike, key=lambda key: key[2]):
        kind, tensors, shares = key
        if not shares and not tensors:
            symbols[key] = _NOTHING
            continue
        wanted = [letter.upper() for letter in kind if letter.isalpha()] + list(ascii_uppercase)
        if shares:
            owner = next((symbols[other] for other in symbols if other[0] == kind and not other[2]), "")
            wanted = [letter.lower() for letter in (owner, *wanted) if letter.isalpha()]
        symbols[key] = next((letter for letter in wanted if letter not in symbols.values()), "?")
    return symbols


def _row(symbol: str, layers: list[LayerSpec], dtype: str) -> LayerRow:
    first = layers[0]
    kept = tuple(_kept(tensor, dtype) for tensor in first.tensors if first.shares_cache_with is None)
    growing = [item for item in kept if item.bytes_per_entry and not item.unfinished]
    endless = [item for item in growing if item.window_tokens is None]
    return LayerRow(
        symbol=symbol,
        kind=first.kind,
        meaning="; ".join(_ASIDE.sub("", table(_KINDS)[word]["meaning"]) for word in first.kind.split("+")),
        layers=tuple(layer.index for layer in layers),
        bytes_per=_added_up((item.grows_with, item.bytes_per_entry // item.tokens_per_entry) for item in endless),
        bytes_at_most=sum(item.bytes_per_entry * item.window_tokens for item in growing if item.window_tokens),
        fixed_bytes=sum(item.fixed_bytes for item in kept),
        tensors=kept,
        reads=tuple(dict.fromkeys(owner for layer in layers if (owner := layer.shares_cache_with) is not None)),
        where=tuple(dict.fromkeys(place for layer in layers for place in layer.where.split("; "))),
    )


def _added_up(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for unit, size in pairs:
        sums[unit] += size
    return dict(sums)


def _kept(tensor: CacheTensor, dtype: str) -> KeptTensor:
    named = tensor.dtype or dtype
    return KeptTensor(
        name=tensor.name,
        dtype=short_name(named),
        bytes_per_entry=tensor.elements_per_token * bits_of()[named] // 8,
        fixed_bytes=tensor.fixed_elements * bits_of()[named] // 8,
        grows_with=tensor.grows_with,
        tokens_per_entry=tensor.tokens_per_entry,
        window_tokens=tensor.window_tokens,
        unfinished=tensor.unfinished,
    )


def _strip_lines(strip: str, paint: Callable[[str, str], str]) -> Iterator[str]:
    for start in range(0, len(strip), _CELLS_A_ROW):
        row = strip[start : start + _CELLS_A_ROW]
        groups = (row[at : at + _CELLS_A_GROUP] for at in range(0, len(row), _CELLS_A_GROUP))
        cells = " ".join("".join(paint(symbol, symbol) for symbol in group) for group in groups)
        yield f"  {start:>4}  {cells}"


def _row_lines(row: LayerRow, width: int, paint: Callable[[str, str], str]) -> Iterator[str]:
    count = len(row.layers)
    yield f"  {paint(row.symbol, row.symbol)}  {row.kind} · {count} layer{'s' if count > 1 else ''}{_ranges(row.layers)}"
    for line in (*_sizes(row), *_details(row)):
        yield from textwrap.wrap(clean(line), width, initial_indent=" " * 5, subsequent_indent=" " * 7)


def _sizes(row: LayerRow) -> Iterator[str]:
    count = len(row.layers)
    if row.reads:
        yield f"reads the cache of layer{'s' if len(row.reads) > 1 else ''} {', '.join(map(str, row.reads))}, keeps none of its own"
        return
    words = list(_rates(row.bytes_per))
    if row.bytes_at_most:
        words.append(f"up to {format_bytes(row.bytes_at_most)} a sequence")
    if row.fixed_bytes:
        words.append(f"{format_bytes(row.fixed_bytes)} a sequence from the first token on")
    if not words:
        yield "keeps nothing between tokens"
    else:
        yield f"each keeps {' and '.join(words)}{_together(row, count)}"


def _rates(bytes_per: dict[str, int]) -> Iterator[str]:
    for unit, size in bytes_per.items():
        yield f"{size:,} B {_GROWS[unit]}"


def _together(row: LayerRow, count: int) -> str:
    if count == 1:
        return ""
    words = list(_rates({unit: size * count for unit, size in row.bytes_per.items()}))
    rest_bytes = (row.bytes_at_most + row.fixed_bytes) * count
    words += [f"{format_bytes(rest_bytes)} a sequence"] if rest_bytes else []
    return f"; the {count} together {' and '.join(words)}"


def _details(row: LayerRow) -> Iterator[str]:
    if row.tensors:
        yield row.meaning
    for item in row.tensors:
        yield f"- {item.name}: {_size_of(item)}, {item.dtype}"
    yield f"read from {'; '.join(_places(row.where))}"


def _places(where: tuple[str, ...]) -> Iterator[str]:
    """The places with the keys of one section told together: ``"config.json#text_config: head_dim, layer_types"``."""
    keys: dict[str, list[str]] = {}
    for place in where:
        if place.startswith(_CONFIG):
            section, _, key = place.removeprefix(_CONFIG).rpartition(".")
            keys.setdefault(section, []).append(key)
    for section, names in keys.items():
        yield f"{_CONFIG if section else _CONFIG[:-1]}{section}: {', '.join(names)}"
    yield from (place for place in where if not place.startswith(_CONFIG))


def _size_of(item: KeptTensor) -> str:
    if not item.bytes_per_entry:
        return f"{item.fixed_bytes:,} B a sequence"
    if item.unfinished:
        return f"{item.bytes_per_entry:,} B for each of the tokens that wait until there are {item.tokens_per_entry}"
    unit = _GROWS[item.grows_with] if item.tokens_per_entry == 1 else f"for every {item.tokens_per_entry} tokens"
    last = ""
    if item.window_tokens is not None:
        last = f", the last {item.window_tokens:,} of them" if item.window_tokens > 1 else ", the last only"
    return f"{item.bytes_per_entry:,} B {unit}{last}"


def _ranges(layers: tuple[int, ...]) -> str:
    """Which layers, where that is short: ``": 0-3, 7"``."""
    ranges: list[list[int]] = []
    for index in layers:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    if len(ranges) > _MOST_RANGES:
        return ""
    return ": " + ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _sum_lines(found: LayerMap, width: int) -> Iterator[str]:
    """What one sequence keeps in all, at several lengths, by engine."""
    own = [row for row in found.rows if not row.reads]
    rates = _added_up((unit, size * len(row.layers)) for row in own for unit, size in row.bytes_per.items())
    rest_bytes = sum((row.bytes_at_most + row.fixed_bytes) * len(row.layers) for row in own)
    beside = " beside that" if rates else ""
    words = [*_rates(rates), *([f"at most {format_bytes(rest_bytes)}{beside}"] if rest_bytes else [])]
    yield from textwrap.wrap(f"A sequence keeps {' and '.join(words) or 'nothing between tokens'}.", width)
    if not found.lengths:
        return
    runtimes = list(found.lengths[0].bytes_by_runtime)
    yield ""
    of = " of so many encoder tokens" if found.facts.family == "encoder-decoder" else ""
    yield f"One sequence{of} under each engine's defaults"
    yield f"  {'tokens':>9}" + "".join(f"{name:>16}" for name in runtimes)
    for length in found.lengths:
        sizes = (length.bytes_by_runtime[name] for name in runtimes)
        cells = ("not known" if size is None else format_bytes(size) for size in sizes)
        yield f"  {length.tokens:>9,}" + "".join(f"{cell:>16}" for cell in cells)
