"""The panels of a picture: bars by precision, and a curve with its band, each against the lines of the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.report.plots.data import KINDS
from hubaudit.report.plots.shapes import Axis, area, cut, dot, line, path, rect, text
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.report.plots.data import Bar, Curve, Limit, Pictured, Stop

WIDTH = 760
_LEFT, _RIGHT = 130, WIDTH - 80
#: Curves end earlier: the devices' names stand beside their lines.
_CURVE_LEFT, _CURVE_RIGHT = 70, WIDTH - 190
_BAR, _GAP = 22, 12
_CURVE_HEIGHT = 210
_LABEL = 15
_GIB, _MIB = 2**30, 2**20
#: A device that has more than so many times what is needed is named, and not drawn to scale.
_FAR = 3
_DASHES = "6 4"
#: Width of a bold letter of the labels, and how far a curve must rise within a label's length to leave room beneath it.
_LETTER, _STEEP = 6.6, 40


def bars_panel(pictured: Pictured, top: float) -> tuple[list[str], float]:
    """Stacked bars, one a precision, and where the panel ends."""
    bars = pictured.bars
    most = max(bar.total_bytes for bar in bars)
    near = sorted((limit for limit in pictured.limits if limit.bytes <= _FAR * most), key=lambda limit: limit.bytes)
    axis = Axis(most=1.02 * max([most, *(limit.bytes for limit in near)]), start=_LEFT, end=_RIGHT)
    heading = "Memory by precision of the weights" if len(bars) > 1 else "Memory by what it is for"
    drawn = [text(0, top + 14, heading, size=14, bold=True)]
    first = top + 30 + _LABEL * len(near)
    bottom = first + len(bars) * (_BAR + _GAP)
    drawn += _grid_across(axis, first - 4, bottom)
    rows = [(bar, first + at * (_BAR + _GAP)) for at, bar in enumerate(bars)]
    names = [(limit, top + 40 + _LABEL * at) for at, limit in enumerate(near)]
    drawn += [part for bar, y in rows for part in _bar(bar, axis, y)]
    for limit, y in names:  # words over lines, lines over bars
        x = axis.at(limit.bytes)
        drawn.append(line(x, y - 10, x, bottom, "limit", width=1.5, dashes=_DASHES))
    drawn += [_limit_name(limit, axis, y) for limit, y in names]
    drawn += [text(axis.at(bar.total_bytes) + 5, y + 15, format_bytes(bar.total_bytes)) for bar, y in rows]
    drawn += _far(pictured.limits, near, _LEFT, bottom + 34)
    below = bottom + 34 + (16 if len(near) < len(pictured.limits) else 0)
    drawn += list(_key(bars, below + 6))
    return drawn, below + 34


def _bar(bar: Bar, axis: Axis, y: float) -> list[str]:
    drawn = [text(_LEFT - 8, y + 15, cut(bar.name, 20), anchor="end")]
    reached = 0
    for kind, size in bar.parts:
        start = axis.at(reached)
        reached += size
        drawn.append(
            rect(start, y, max(axis.at(reached) - start, 0.5), _BAR, kind, f"{KINDS[kind]}: {format_bytes(size)}")
        )
    return drawn


def _key(bars: tuple[Bar, ...], y: float) -> Iterator[str]:
    present = [kind for kind in KINDS if any(kind == one for bar in bars for one, _ in bar.parts)]
    x = float(_LEFT)
    for kind in present:
        yield rect(x, y, 11, 11, kind)
        yield text(x + 16, y + 10, KINDS[kind], size=11, role="dim")
        x += 30 + 6.4 * len(KINDS[kind])


def _limit_name(limit: Limit, axis: Axis, y: float) -> str:
    x = axis.at(limit.bytes)
    words = cut(f"{limit.name} {format_bytes(limit.bytes)}", 44)
    is_right = x > (_LEFT + _RIGHT) / 2
    return text(x - 5 if is_right else x + 5, y, words, size=11, role="limit", anchor="end" if is_right else "start")


def _far(limits: tuple[Limit, ...], near: list[Limit], x: float, y: float) -> list[str]:
    """Devices that have far more, in words."""
    far = [f"{limit.name} {format_bytes(limit.bytes)}" for limit in limits if limit not in near]
    return [text(x, y, cut(f"far beyond: {', '.join(far)}", 90), size=11, role="limit")] if far else []


def _grid_across(axis: Axis, top: float, bottom: float) -> Iterator[str]:
    unit = _GIB if axis.most >= 2 * _GIB else _MIB
    for tick in axis.ticks(8, unit):
        yield line(axis.at(tick), top, axis.at(tick), bottom, "grid")
        yield text(axis.at(tick), bottom + 15, _size(tick, unit), size=11, role="dim", anchor="middle")


def curve_panel(curve: Curve, limits: tuple[Limit, ...], top: float) -> tuple[list[str], float]:
    """Memory over one number, and where the panel ends."""
    highest = max(high for _, _, _, high in curve.points)
    near = [limit for limit in limits if limit.bytes <= _FAR * highest]
    first, bottom = top + 30, top + 30 + _CURVE_HEIGHT
    up = Axis(most=1.04 * max([highest, *(limit.bytes for limit in near)]), start=bottom, end=first)
    across = Axis(most=curve.points[-1][0], start=_CURVE_LEFT, end=_CURVE_RIGHT, is_binary=True)
    drawn = [text(0, top + 14, f"Memory against {curve.name}", size=14, bold=True), *_grid(up, across, first, bottom)]
    band = [(across.at(x), up.at(high)) for x, _, _, high in curve.points]
    band += [(across.at(x), up.at(low)) for x, low, _, _ in reversed(curve.points)]
    drawn.append(area(band, "Parameter"))
    drawn.append(path([(across.at(x), up.at(middle)) for x, _, middle, _ in curve.points], "Parameter"))
    drawn += _limits_along(near, up)
    shown = [stop for stop in curve.stops if limits[stop.limit] in near]
    drawn += [part for stop in shown for part in _stop(stop, limits, across, up)]
    marks = [(across.at(stop.value), up.at(limits[stop.limit].bytes), len(_stop_words(stop))) for stop in shown]
    drawn += _asked(curve, across, up, marks)
    middle = (_CURVE_LEFT + _CURVE_RIGHT) / 2
    drawn.append(text(middle, bottom + 32, curve.name, size=11, role="dim", anchor="middle"))
    drawn += _far(limits, near, _CURVE_LEFT, bottom + 48)
    return drawn, bottom + (50 if len(near) < len(limits) else 34)


def _grid(up: Axis, across: Axis, top: float, bottom: float) -> Iterator[str]:
    unit = _GIB if up.most >= 2 * _GIB else _MIB
    for tick in up.ticks(6, unit):
        yield line(_CURVE_LEFT, up.at(tick), _CURVE_RIGHT, up.at(tick), "grid")
        yield text(_CURVE_LEFT - 8, up.at(tick) + 4, _size(tick, unit), size=11, role="dim", anchor="end")
    for tick in across.ticks(6, 1024 if across.most >= 8192 else 1):
        yield line(across.at(tick), top, across.at(tick), bottom, "grid")
        yield text(across.at(tick), bottom + 16, f"{tick:,}", size=11, role="dim", anchor="middle")


def _limits_along(limits: list[Limit], up: Axis) -> Iterator[str]:
    """The devices' lines, with their names at the right end, moved apart where they are close."""
    last = float("inf")
    for limit in sorted(limits, key=lambda one: one.bytes):
        y = up.at(limit.bytes)
        yield line(_CURVE_LEFT, y, _CURVE_RIGHT, y, "limit", width=1.5, dashes=_DASHES)
        last = min(y + 4, last - _LABEL)
        words = f"{cut(limit.name, 19)} {format_bytes(limit.bytes)}"
        yield text(_CURVE_RIGHT + 7, last, words, size=11, role="limit")


def _stop(stop: Stop, limits: tuple[Limit, ...], across: Axis, up: Axis) -> list[str]:
    """The last number that fits: a mark on the device's line, and the number beside it."""
    x, y = across.at(stop.value), up.at(limits[stop.limit].bytes)
    is_right = x > (_CURVE_LEFT + _CURVE_RIGHT) / 2
    return [
        line(x, y, x, up.start, "limit", dashes="2 3"),
        dot(x, y, "limit"),
        text(
            x - 8 if is_right else x + 8,
            y - 8 if is_right else min(y + 16, up.start - 4),
            _stop_words(stop),
            size=11,
            anchor="end" if is_right else "start",
            bold=True,
        ),
    ]


def _stop_words(stop: Stop) -> str:
    return f"fits up to {stop.value:,}"


def _asked(curve: Curve, across: Axis, up: Axis, marks: list[tuple[float, float, int]]) -> list[str]:
    """The number that was asked for, on the curve; its words go above the axis, and to the right of a mark's words on the same height."""
    x, y = across.at(curve.asked), up.at(_between(curve, curve.asked))
    at, height = x + 7, y + 15
    if height > up.start - 4:  # it lies low: beneath a steep curve there is room for words, above a flat one too
        beyond = up.at(_between(curve, min(curve.asked + curve.points[-1][0] // 6, curve.points[-1][0])))
        height = up.start - 4 if y - beyond > _STEEP else y - 26
    for mark, line_height, letters in marks:
        words = (mark + 8, min(line_height + 16, up.start - 4))
        if abs(words[1] - height) < _LABEL and words[0] - 90 < at < words[0] + _LETTER * letters:
            at = words[0] + _LETTER * letters + 10
    return [dot(x, y, "Parameter"), text(at, height, f"asked: {curve.asked:,}", size=11, role="dim")]


def _between(curve: Curve, value: int) -> float:
    """The curve's middle at a value, on the straight line between two points."""
    for (x1, _, y1, _), (x2, _, y2, _) in zip(curve.points, curve.points[1:], strict=False):
        if x1 <= value <= x2:
            return y1 + (y2 - y1) * (value - x1) / (x2 - x1)
    return curve.points[-1][2]


def _size(size_bytes: int, unit: int) -> str:
    return f"{size_bytes // unit:,} {'GiB' if unit == _GIB else 'MiB'}"
