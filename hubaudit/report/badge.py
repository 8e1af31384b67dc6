"""A badge: two words side by side in an SVG of its own, without fonts, scripts or anything fetched."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hubaudit.report.phrases import clean
from hubaudit.report.totals import total_of
from hubaudit.units import format_count

if TYPE_CHECKING:
    from hubaudit.types import Report

KINDS = ("memory", "parameters", "fit")
#: Colours with a contrast of at least 4.5 to white text (WCAG 2.2, 1.4.3).
_LEFT = "#444444"
_BLUE, _GREEN, _AMBER, _RED, _GREY = "#0b62a8", "#1f7a33", "#8a5a00", "#b3261e", "#5f5f5f"
_VERDICTS = {"fits": _GREEN, "tight": _AMBER, "no": _RED, "unknown": _GREY}
_PIXELS, _MARGIN, _HEIGHT = 7, 8, 20


def badge(report: Report, kind: str) -> str:
    """The badge of a report: its estimate, its parameters, or the verdict on its first device.

    Raises:
        ValueError: ``kind`` is ``fit`` and no device was judged.
    """
    return _drawn(*_words(report, kind))


def _words(report: Report, kind: str) -> tuple[str, str, str]:
    """Left, right, and the right side's colour."""
    if kind == "parameters":
        count = report.facts.parameters
        return (
            "parameters",
            "unknown" if count is None else format_count(count.total),
            _GREY if count is None else _BLUE,
        )
    if kind == "memory":
        at = report.workload.quant or report.workload.dtype or "as stored"
        return (
            f"memory ({report.workload.mode}, {at})",
            total_of(report.estimate),
            _GREY if report.estimate.omitted else _BLUE,
        )
    if not report.fit:
        raise ValueError("no device was named")
    fit = report.fit[0]
    return fit.hardware.name, fit.verdict, _VERDICTS[fit.verdict]


def _drawn(left: str, right: str, colour: str) -> str:
    left, right = (escape(clean(word)[:80], quote=True) for word in (left, right))
    widths = [len(word) * _PIXELS + 2 * _MARGIN for word in (left, right)]
    total = sum(widths)
    texts = "".join(
        f'<text x="{x}" y="14" textLength="{width - 2 * _MARGIN}" lengthAdjust="spacingAndGlyphs">{word}</text>'
        for word, x, width in ((left, _MARGIN, widths[0]), (right, widths[0] + _MARGIN, widths[1]))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{_HEIGHT}" role="img" aria-label="{left}: {right}">'
        f"<title>{left}: {right}</title>"
        f'<clipPath id="r"><rect width="{total}" height="{_HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{widths[0]}" height="{_HEIGHT}" fill="{_LEFT}"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="{_HEIGHT}" fill="{colour}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11">{texts}</g></svg>\n'
    )
