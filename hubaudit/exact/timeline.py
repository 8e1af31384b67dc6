"""Memory over a run as a picture: one layer of colour a component, reserved memory as a line, the peak marked."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hubaudit.exact.events import Trace
    from hubaudit.exact.replay import Moment, Replay

_WIDTH, _HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 170, 46, 44
_COLUMNS = 600
#: Colours that people with any colour vision tell apart (Okabe and Ito's palette), in the order in which components are stacked.
_COLOURS = {
    "weights": "#0072B2",
    "adapters": "#56B4E9",
    "optimizer": "#D55E00",
    "gradients": "#E69F00",
    "kv_cache": "#009E73",
    "autocast_copies": "#8C6BB1",
    "activations": "#CC79A7",
    "logits": "#F0E442",
    "workspace": "#999999",
}
_OTHER = "#444444"
_TICKS = 4
#: Paper and ink by day and by night; the components' colours are the same on both.
_STYLE = (
    "<style>.ink{fill:#1b1f24}.page{fill:#fff}.soft{fill:#555}.grid{stroke:#ddd}.end{stroke:#bbb}.line{stroke:#222}.halo{stroke:#fff}"
    "@media (prefers-color-scheme: dark){.ink{fill:#e6edf3}.page{fill:#0d1117}.soft{fill:#9da7b3}.grid{stroke:#2f353d}.end{stroke:#59616b}"
    ".line{stroke:#e6edf3}.halo{stroke:#0d1117}}</style>"
)


def to_svg(replayed: Replay, trace: Trace, title: str, label: str) -> str:
    """The timeline of a replay that was made ``with_timeline``; the horizontal axis counts the allocator's events, not seconds."""
    moments = _columns(replayed.timeline)
    top_bytes = max(replayed.peak_reserved_bytes, 1)
    names = [name for name in _COLOURS if any(name in moment.by_component for moment in moments)]
    names += sorted({name for moment in moments for name in moment.by_component} - set(names))
    last = max(len(trace.events) - 1, 1)
    parts = [
        *_frame(title, label, top_bytes),
        *_layers(moments, names, last, top_bytes),
        _reserved(moments, last, top_bytes),
        *_phases(trace, last),
        *_peak(replayed, last, top_bytes),
        *_legend(names, replayed),
    ]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" class="ink" '
        f'font-family="sans-serif" font-size="12">\n{_STYLE}\n<rect width="{_WIDTH}" height="{_HEIGHT}" class="page"/>\n{body}\n</svg>\n'
    )


def to_html(replayed: Replay, trace: Trace, title: str, label: str) -> str:
    """The same picture in a page of its own, without scripts."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{margin:2em;font-family:sans-serif}svg{max-width:100%;height:auto}"
        "@media (prefers-color-scheme: dark){body{background:#0d1117}}</style></head><body>\n"
        f"{to_svg(replayed, trace, title, label)}</body></html>\n"
    )


def _columns(timeline: Sequence[Moment]) -> list[Moment]:
    """Few enough moments to draw: of each stretch the one with most allocated, so that no peak is lost."""
    stretch = max(1, -(-len(timeline) // _COLUMNS))
    return [
        max(timeline[at : at + stretch], key=lambda moment: sum(moment.by_component.values()))
        for at in range(0, len(timeline), stretch)
    ]


def _x(event: int, last: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * event / last


def _y(size_bytes: int, top_bytes: int) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * size_bytes / top_bytes


def _frame(title: str, label: str, top_bytes: int) -> Iterator[str]:
    yield f'<text x="{_LEFT}" y="18" font-size="15" font-weight="bold">{escape(title)}</text>'
    yield f'<text x="{_LEFT}" y="35" class="soft">{escape(label)}</text>'
    for tick in range(_TICKS + 1):
        size_bytes = top_bytes * tick // _TICKS
        height = _y(size_bytes, top_bytes)
        yield f'<line x1="{_LEFT}" y1="{height:.1f}" x2="{_WIDTH - _RIGHT}" y2="{height:.1f}" class="grid"/>'
        yield f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{format_bytes(size_bytes)}</text>'


def _layers(moments: Sequence[Moment], names: Sequence[str], last: int, top_bytes: int) -> Iterator[str]:
    below = [0] * len(moments)
    for name in names:
        above = [low + moment.by_component.get(name, 0) for low, moment in zip(below, moments, strict=True)]
        upper = [
            f"{_x(one.event, last):.1f},{_y(high, top_bytes):.1f}" for one, high in zip(moments, above, strict=True)
        ]
        lower = [f"{_x(one.event, last):.1f},{_y(low, top_bytes):.1f}" for one, low in zip(moments, below, strict=True)]
        points = " ".join((*upper, *reversed(lower)))
        yield f'<polygon points="{points}" fill="{_COLOURS.get(name, _OTHER)}"/>'
        below = above


def _reserved(moments: Sequence[Moment], last: int, top_bytes: int) -> str:
    points = " ".join(f"{_x(one.event, last):.1f},{_y(one.reserved_bytes, top_bytes):.1f}" for one in moments)
    return f'<polyline points="{points}" fill="none" class="line" stroke-dasharray="4 2"/>'


def _phases(trace: Trace, last: int) -> Iterator[str]:
    """A line where each phase ends; its name below, where it has room."""
    from hubaudit.exact.events import Mark

    free_from = float(_LEFT)
    for at, event in enumerate(trace.events):
        if not isinstance(event, Mark):
            continue
        end = _x(at, last)
        yield f'<line x1="{end:.1f}" y1="{_TOP}" x2="{end:.1f}" y2="{_HEIGHT - _BOTTOM}" class="end"/>'
        width = 6.5 * len(event.label)
        if end - width >= free_from:
            yield f'<text x="{end:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="end" class="soft">{escape(event.label)}</text>'
            free_from = end + 4


def _peak(replayed: Replay, last: int, top_bytes: int) -> Iterator[str]:
    moment = max(replayed.timeline, key=lambda one: sum(one.by_component.values()), default=None)
    if moment is None:
        return
    across, height = _x(moment.event, last), _y(replayed.peak_allocated_bytes, top_bytes)
    anchor = "end" if across > (_WIDTH - _RIGHT) / 2 else "start"
    shift = -8 if anchor == "end" else 8
    yield f'<circle cx="{across:.1f}" cy="{height:.1f}" r="4" fill="none" class="line" stroke-width="2"/>'
    yield (
        f'<text x="{across + shift:.1f}" y="{height - 6:.1f}" text-anchor="{anchor}" font-weight="bold" class="ink halo" stroke-width="3" '
        f'paint-order="stroke">peak {format_bytes(replayed.peak_allocated_bytes)}</text>'
    )


def _legend(names: Sequence[str], replayed: Replay) -> Iterator[str]:
    left = _WIDTH - _RIGHT + 14
    yield f'<text x="{left}" y="{_TOP + 4}" class="soft">at the peak</text>'
    for row, name in enumerate(reversed(names)):
        height = _TOP + 14 + 34 * row
        yield f'<rect x="{left}" y="{height}" width="12" height="12" fill="{_COLOURS.get(name, _OTHER)}"/>'
        yield f'<text x="{left + 18}" y="{height + 10}">{escape(name)}</text>'
        yield f'<text x="{left + 18}" y="{height + 24}" class="soft">{format_bytes(replayed.at_peak.get(name, 0))}</text>'
    height = _TOP + 14 + 34 * len(names)
    yield f'<line x1="{left}" y1="{height + 6}" x2="{left + 12}" y2="{height + 6}" class="line" stroke-dasharray="4 2"/>'
    yield f'<text x="{left + 18}" y="{height + 10}">reserved</text>'
    yield f'<text x="{left + 18}" y="{height + 24}" class="soft">{format_bytes(replayed.peak_reserved_bytes)}</text>'
