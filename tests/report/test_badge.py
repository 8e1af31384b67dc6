"""Badges: well-formed, readable, and nothing but text in them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from fixture_models import ROOT

from hubaudit.auditing import audit
from hubaudit.fit.catalogue import hardware_named
from hubaudit.report.badge import badge
from hubaudit.types import Hardware

if TYPE_CHECKING:
    from hubaudit.types import Report

QWEN = str(ROOT / "fixtures" / "bundles" / "qwen2-0.5b-instruct.json.gz")


def report(hardware: tuple[Hardware, ...] = ()) -> Report:
    """The audit of Qwen2-0.5B-Instruct."""
    return audit(QWEN, hardware=hardware)


def words(svg: str) -> list[str]:
    """The texts of a badge."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own
    return [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("kind", "said"), [("parameters", ["parameters", "494.03 M"]), ("memory", ["memory (infer, bf16)", "1.29 GiB"])]
)
def test_what_it_says(kind: str, said: list[str]) -> None:
    """What, and how much."""
    assert words(badge(report(), kind)) == said


@pytest.mark.parametrize(("size", "verdict"), [(hardware_named("rtx 4090").usable_bytes, "fits"), (10**6, "no")])
def test_the_verdict(size: int, verdict: str) -> None:
    """On the first device; without one there is none to show."""
    assert words(badge(report((Hardware(name="card", usable_bytes=size),)), "fit")) == ["card", verdict]
    with pytest.raises(ValueError, match="no device"):
        badge(report(), "fit")


def test_nothing_but_text() -> None:
    """A hostile name is text: no element, no script, nothing fetched."""
    made = report((Hardware(name='"/><script>x</script>&\x1b', usable_bytes=10**12),))
    svg = badge(replace(made), "fit")
    assert words(svg)[0].startswith('"/><script>')
    assert "<script" not in svg
    assert not re.search(r"href|url\((?!#)|\bon\w+=", svg)


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast() -> None:
    """White text on each colour has the contrast of 4.5 that WCAG asks of small text."""
    import hubaudit.report.badge as module

    for colour in (module._LEFT, module._BLUE, module._GREEN, module._AMBER, module._RED, module._GREY):
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5
