"""Measurements as text of 80 columns: phases, figures beside both estimates with errors in percent, what stays behind."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from hubaudit.errors import HubauditError
from hubaudit.report.phrases import clean
from hubaudit.units import format_bytes
from hubaudit.verify.beside import MAX_ALLOCATED, MAX_RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hubaudit.verify.measurement import Figure, Measurement

_COLUMNS = 80
_WORDS = {MAX_ALLOCATED: "max allocated", MAX_RESERVED: "max reserved", "kv_cache": "cache"}


def to_text(made: Measurement) -> str:
    """One run, whole."""
    lines = [*_head(made), ""]
    lines += _phases(made)
    lines += ["", *_grid(("", "measured", "exact", "error", "formula", "error"), map(_figure_row, made.figures))]
    lines += ["", *_notes(made)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _head(made: Measurement) -> Iterator[str]:
    work = made.workload
    precision = work.quant or (work.recipe if work.mode == "train" else work.dtype) or ""
    if work.mode == "train":
        what = f"training steps of {work.batch_size} × {work.sequence_tokens} tokens, {precision}, {work.optimizer}"
        what += f", LoRA {work.lora}" if work.lora else ""
        what += ", checkpointing" if work.gradient_checkpointing else ""
    else:
        what = f"{work.batch_size} × {work.prompt_tokens} tokens + {work.new_tokens or 0} new, {precision}"
    yield from wrap(f"{clean(made.subject.repo_id)}: {what}, {work.attention} attention", _COLUMNS)
    where = made.environment.get("device")
    versions = ", ".join(
        f"{name} {version}"
        for name, version in made.environment.get("libraries", {}).items()
        if name in ("torch", "transformers")
    )
    yield from wrap(f"measured on {where}, {made.weights} weights; {versions}", _COLUMNS)


def _phases(made: Measurement) -> Iterator[str]:
    rows = [
        (
            clean(phase.name),
            format_bytes(phase.allocated_bytes),
            format_bytes(phase.peak_allocated_bytes),
            format_bytes(phase.peak_reserved_bytes),
            "" if phase.process_bytes is None else format_bytes(phase.process_bytes),
            _off(phase.exact_peak_allocated_bytes, phase.peak_allocated_bytes),
        )
        for phase in made.phases
    ]
    return _grid(("phase", "at its end", "max alloc.", "max reserved", "process", "exact is"), rows)


def _figure_row(figure: Figure) -> tuple[str, ...]:
    return (
        _WORDS.get(figure.id, figure.id),
        _size(figure.measured_bytes),
        _size(figure.exact_bytes),
        _off(figure.exact_bytes, figure.measured_bytes),
        _size(figure.formula_bytes),
        _off(figure.formula_bytes, figure.measured_bytes),
    )


def _notes(made: Measurement) -> Iterator[str]:
    notes = []
    if made.cache is not None:
        notes.append(_cache_note(made))
    if made.leak_bytes is not None:
        times = len(made.rests)
        grown = f"grew by at least {format_bytes(made.leak_bytes)} each time: a leak" if made.leak_bytes else "no leak"
        notes.append(f"run {times} times: {grown}; {format_bytes(made.rests[-1])} at rest")
    if made.exact_reason is not None:
        notes.append(f"no exact figures: {clean(made.exact_reason)}")
    if made.formula_lacks:
        notes.append(f"the formula is a lower bound here: it leaves out {', '.join(made.formula_lacks)}")
    notes.append(f"measured: {made.measures}")
    if made.device == "cpu":
        notes.append(
            "allocated and reserved are those storages as CUDA's caching allocator would round and keep them; exact and formula are "
            "without what CUDA alone takes (context, workspaces, kernels' scratch)"
        )
        if made.workload.quant:
            notes.append(
                "bitsandbytes' layers do here what they do on CUDA, step by step, so that the weights that CUDA unpacks are counted"
            )
        if made.workload.attention != "eager":
            notes.append(
                "the CPU's fused attention is not always the kernel that CUDA takes; --attention eager is the same on both"
            )
    for note in notes:
        yield from wrap(f"- {note}", _COLUMNS, subsequent_indent="  ")


def _cache_note(made: Measurement) -> str:
    cache = made.cache
    if cache is None:
        return ""
    words = f"the cache holds {format_bytes(cache.held_bytes)}"
    if cache.used_bytes is not None and cache.held_bytes:
        share = 100 * cache.used_bytes / cache.held_bytes
        words += f" for {cache.tokens} tokens, {share:.1f} % of them in use"
    return words


def slope_text(one: Measurement, other: Measurement) -> str:
    """What each further sequence takes, by the two runs' peaks."""
    rows = []
    for name in (MAX_ALLOCATED, MAX_RESERVED):
        first, second = one.figure(name), other.figure(name)
        if first is None or second is None:
            continue
        step = other.workload.batch_size - one.workload.batch_size
        measured = _step(first.measured_bytes, second.measured_bytes, step)
        exact = _step(first.exact_bytes, second.exact_bytes, step)
        formula = _step(first.formula_bytes, second.formula_bytes, step)
        rows.append(
            (
                _WORDS[name],
                _size(measured),
                _size(exact),
                _off(exact, measured),
                _size(formula),
                _off(formula, measured),
            )
        )
    sizes = f"{one.workload.batch_size} and {other.workload.batch_size}"
    head = ("per sequence", "measured", "exact", "error", "formula", "error")
    return "".join(f"{line.rstrip()}\n" for line in (f"by batches of {sizes}:", *_grid(head, rows)))


def _step(first: int | None, second: int | None, by: int) -> int | None:
    return None if first is None or second is None or not by else (second - first) // by


def compare_text(rows: Sequence[tuple[str, Measurement | HubauditError]]) -> str:
    """The same workload with the weights held otherwise: one row each."""
    cells = []
    reasons = []
    for name, made in rows:
        if isinstance(made, HubauditError):
            cells.append((name, "", "", "", "", ""))
            reasons.append(f"- {name}: {clean(made.message)}")
            continue
        weights, peak, reserved = (made.figure(one) for one in ("weights", MAX_ALLOCATED, MAX_RESERVED))
        cells.append(
            (
                name,
                _size(None if weights is None else weights.measured_bytes),
                _size(None if peak is None else peak.measured_bytes),
                _size(None if reserved is None else reserved.measured_bytes),
                "" if peak is None else _off(peak.exact_bytes, peak.measured_bytes),
                "" if peak is None else _off(peak.formula_bytes, peak.measured_bytes),
            )
        )
    head = ("", "weights", "max allocated", "max reserved", "exact is", "formula is")
    lines = [
        *_grid(head, cells),
        *(line for reason in reasons for line in wrap(reason, _COLUMNS, subsequent_indent="  ")),
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _grid(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    whole = [head, *rows]
    widths = [max(len(row[at]) for row in whole) for at in range(len(head))]
    for row in whole:
        yield "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return ""
    return format_bytes(size_bytes) if size_bytes >= 0 else f"-{format_bytes(-size_bytes)}"


def _off(value: int | None, measured: int | None) -> str:
    return "" if value is None or not measured else f"{100 * (value / measured - 1):+.2f} %"
