"""SVG by hand: a few shapes as text, everything that a stranger may have written escaped, and axes with round numbers."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal, TypeAlias

from hubaudit.report.phrases import clean

Theme: TypeAlias = Literal["auto", "light", "dark"]

FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
#: Ink, dimmed ink, grid and background, then one colour for each category; both sets are told apart without colour vision.
_LIGHT = {
    "bg": "#ffffff", "ink": "#1f2328", "dim": "#59636e", "grid": "#d8dee4",
    "Parameter": "#2f6db3", "Buffer": "#8fb4dd", "Gradient": "#b5446e", "OptimizerState": "#7a4fa3", "KVCache": "#e08a1e",
    "Activation": "#3a9a6b", "Workspace": "#9aa4ae", "Context": "#69737d", "Fragmentation": "#c9ced3", "limit": "#c62f3a",
}  # fmt: skip
_DARK = {
    "bg": "#0d1117", "ink": "#e6edf3", "dim": "#9198a1", "grid": "#2f353d",
    "Parameter": "#5a9be0", "Buffer": "#2f5f96", "Gradient": "#e07aa2", "OptimizerState": "#a988d6", "KVCache": "#f0a94a",
    "Activation": "#5cc493", "Workspace": "#6e7781", "Context": "#9aa4ae", "Fragmentation": "#454c54", "limit": "#ff7b84",
}  # fmt: skip
_ROUND = (1, 2, 5, 10)


def style(theme: Theme) -> str:
    """The classes of the shapes; ``auto`` follows what the reader's system prefers."""
    if theme == "auto":
        return f"<style>{_classes(_LIGHT)}@media (prefers-color-scheme: dark) {{{_classes(_DARK)}}}</style>"
    return f"<style>{_classes(_DARK if theme == 'dark' else _LIGHT)}</style>"


def _classes(colours: dict[str, str]) -> str:
    filled = "".join(f".f-{name}{{fill:{colour}}}" for name, colour in colours.items())
    drawn = "".join(f".s-{name}{{stroke:{colour};fill:none}}" for name, colour in colours.items())
    # Text has a rim of the background, so that lines beneath do not cross it.
    return f"{filled}{drawn}text{{paint-order:stroke;stroke:{colours['bg']};stroke-width:3px;stroke-linejoin:round}}"


def text(
    x: float, y: float, words: str, *, size: int = 12, role: str = "ink", anchor: str = "start", bold: bool = False
) -> str:
    """A line of text, its baseline at ``y``."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="f-{role}" font-size="{size}" text-anchor="{anchor}"{weight}>'
        f"{escape(clean(words))}</text>"
    )


def rect(x: float, y: float, width: float, height: float, role: str, title: str = "") -> str:
    """A filled rectangle; ``title`` is what it says when it is pointed at."""
    said = f"<title>{escape(clean(title))}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="f-{role}">{said}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, role: str, *, width: float = 1, dashes: str = "") -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="s-{role}" stroke-width="{width}"{dashed}/>'


def path(points: list[tuple[float, float]], role: str) -> str:
    """A line through the points."""
    return f'<polyline points="{_listed(points)}" class="s-{role}" stroke-width="2"/>'


def area(points: list[tuple[float, float]], role: str) -> str:
    """A faint area within the points."""
    return f'<polygon points="{_listed(points)}" class="f-{role}" fill-opacity="0.18"/>'


def dot(x: float, y: float, role: str) -> str:
    """A mark on a curve."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="f-{role}"/>'


def _listed(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A linear scale from 0 (or ``first``) to ``most``, drawn from ``start`` to ``end`` in pixels."""

    most: float
    start: float
    end: float
    is_binary: bool = False

    def at(self, value: float) -> float:
        """Where a value is."""
        return self.start + (self.end - self.start) * value / self.most if self.most else self.start

    def ticks(self, wanted: int, unit: int) -> list[int]:
        """Round multiples of ``unit``, no more than so many and one: powers of two of a unit that is one itself, else 1, 2, 5, 10."""
        least = self.most / unit / wanted
        power, base = 1, 2 if unit > 1 and self.is_binary else 10
        while power * base < least:
            power *= base
        rounds = (1, 2) if base == 2 else _ROUND
        step = next((power * factor for factor in rounds if power * factor >= least), power * base)
        return [number * step * unit for number in range(int(self.most / unit // step) + 1)]


def cut(words: str, most: int) -> str:
    """Words that fit into so many characters."""
    return words if len(words) <= most else f"{words[: most - 1]}…"
