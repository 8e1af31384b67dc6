"""`--plot FILE`: the pictures of a report as SVG, PNG or a page, by the file's name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.types import Report

_ENDINGS = (".svg", ".png", ".html")
_ZOOM = 2


def check_plot(name: str | None) -> None:
    """Refuse a name that says nothing, and PNG where nothing can draw it, before anything is read.

    Raises:
        UsageError: the name has another ending, or the extra is missing.
    """
    if name is None:
        return
    if not name.lower().endswith(_ENDINGS):
        raise UsageError(
            f"--plot writes {', '.join(_ENDINGS)}, not `{name}`", hint="end the file's name in one of them"
        )
    if name.lower().endswith(".png"):
        _renderer()


def write_plot(reports: Sequence[Report], name: str) -> None:
    """Draw ``reports`` into the file ``name``.

    Raises:
        UsageError: the file cannot be written.
    """
    from hubaudit.report.plots.page import to_html, to_svg

    if name.lower().endswith(".html"):
        content = to_html(reports).encode("utf-8", "backslashreplace")
    elif name.lower().endswith(".svg"):
        content = to_svg(reports).encode("utf-8", "backslashreplace")
    else:
        content = _png(to_svg(reports, "light"))
    try:
        Path(name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write `{name}`: {error.strerror}") from None


def _png(svg: str) -> bytes:
    return bytes(_renderer().svg_to_bytes(svg_string=svg, zoom=_ZOOM))


def _renderer() -> Any:
    """The library that makes pixels of SVG.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module("resvg_py")
    except ImportError:
        raise UsageError(
            "PNG needs an extra", hint="pip install 'hubaudit[plot]', or --plot with a name in .svg or .html"
        ) from None
