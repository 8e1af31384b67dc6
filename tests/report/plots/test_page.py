"""Pictures: the numbers are the report's, the marks are the solver's, nothing of a stranger's is markup, and every model can be drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from fixture_models import NAMES, facts_of, snapshot_of

from hubaudit.auditing import audit_snapshot
from hubaudit.estimate.modes import estimate
from hubaudit.fit.catalogue import hardware_named
from hubaudit.report.plots.data import pictured
from hubaudit.report.plots.page import to_html, to_svg
from hubaudit.report.plots.shapes import Axis
from hubaudit.types import Omission, Workload

if TYPE_CHECKING:
    from hubaudit.types import Report

CARDS = ("4090", "rtx3070", "h100")
HOSTILE = 'evil/"><script>alert(1)</script>&\x1b[31m'
NAMESPACE = "{http://www.w3.org/2000/svg}"


def report_on(name: str, *cards: str, **asked: object) -> Report:
    """The audit of a fixture, judged against these cards."""
    return audit_snapshot(snapshot_of(name), Workload(**asked), tuple(map(hardware_named, cards)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_every_bar_is_a_row_of_the_report(name: str) -> None:
    """The bars' totals are those of the table of precisions, or of the estimate where there is none; points of the curves are the estimator's."""
    report = report_on(name)
    shown = pictured(report)
    expected = [variant.total_bytes for variant in report.variants] or [report.estimate.total_bytes]
    assert [bar.total_bytes for bar in shown.bars] == expected
    for curve in shown.curves:
        values = [point[0] for point in curve.points]
        assert values == sorted(set(values))
        assert values[0] <= curve.asked <= values[-1]
        assert all(low <= middle <= high for _, low, middle, high in curve.points)
    root = ET.fromstring(to_svg([report]))  # noqa: S314 - our own text
    assert root.tag == f"{NAMESPACE}svg"


def test_the_mark_is_where_it_stops_fitting() -> None:
    """One token or sequence more than the mark says is above the device's line, by the estimator."""
    report = report_on("llama-3.1-8b", *CARDS)
    shown = pictured(report)
    context, batch = shown.curves
    facts = facts_of("llama-3.1-8b")
    assert context.stops
    assert batch.stops
    for stop in context.stops:
        new = report.workload.new_tokens or 0
        here, beyond = (
            estimate(facts, replace(report.workload, prompt_tokens=tokens - new)).high_bytes
            for tokens in (stop.value, stop.value + 1)
        )
        assert here <= shown.limits[stop.limit].bytes < beyond
    for stop in batch.stops:
        here, beyond = (
            estimate(facts, replace(report.workload, batch_size=number)).high_bytes
            for number in (stop.value, stop.value + 1)
        )
        assert here <= shown.limits[stop.limit].bytes < beyond


def test_devices_that_share_otherwise_have_no_mark() -> None:
    """Two T4 hold the model split in two, which is not the curve of one device."""
    report = report_on("llama-3.1-8b", "t4x2")
    assert report.fit[0].split is not None
    assert not any(curve.stops for curve in pictured(report).curves)


def test_what_the_estimate_lacks_the_picture_says() -> None:
    """A part that could not be estimated is named, so that nobody takes the bars for all."""
    report = report_on("qwen2-0.5b-instruct")
    assert "not in it" not in to_svg([report])
    lacking = replace(report.estimate, omitted=(Omission(id="activations", reason="made up"),))
    assert "not in it: activations" in to_svg([replace(report, estimate=lacking)])


def test_names_are_escaped() -> None:
    """A repository's name is text in the SVG and in the page, and no control character gets through."""
    report = report_on("qwen2-0.5b-instruct", "4090")
    report = replace(report, subject=replace(report.subject, repo_id=HOSTILE))
    for text in (to_svg([report]), to_html([report])):
        assert "<script" not in text
        assert "\x1b" not in text
        assert "evil/&quot;&gt;&lt;script&gt;" in text
    ET.fromstring(to_svg([report]))  # noqa: S314 - our own text


def test_the_page_needs_nothing_else() -> None:
    """No script, no link, no image from anywhere; every tag that opens closes."""
    page = to_html([report_on("llama-3.1-8b", *CARDS), report_on("gpt2")])
    assert not any(word in page for word in ("<script", "<link", "<img", "@import", "url("))
    opened: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            """Closed at once."""

    Checker().feed(page)
    assert opened == []
    assert page.count("<svg ") == 2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_fixes_the_colours(theme: str) -> None:
    """A fixed theme asks nothing of the reader's system; the other follows it."""
    report = report_on("gpt2")
    assert "prefers-color-scheme" not in to_svg([report], theme)  # type: ignore[arg-type]
    assert "prefers-color-scheme" in to_svg([report])


@pytest.mark.parametrize("most", [1, 7, 99, 1000, 131_072, 3 * 2**30])
@pytest.mark.parametrize("is_binary", [False, True])
def test_ticks_are_few_and_round(most: int, is_binary: bool) -> None:
    """From 0 to no more than the end, at equal steps, eight of them at most and one."""
    for unit in (1, 1024):
        ticks = Axis(most=most, start=0, end=1, is_binary=is_binary).ticks(8, unit)
        assert ticks[0] == 0
        assert ticks[-1] <= most
        assert len(ticks) <= 9
        assert len({after - before for before, after in pairwise(ticks)}) <= 1


def test_a_training_picture_shows_where_it_stops() -> None:
    """Tokens go up to a few times what was asked and what fits, not to the model's whole context, and the labels stay above the axis."""
    report = report_on("llama-3.1-8b", "4090", mode="train", lora=16)
    context = pictured(report).curves[0]
    (fit,) = report.fit
    assert fit.max_context is not None
    assert context.points[-1][0] == max(4 * context.asked, fit.max_context * 5 // 4)
    words = {
        "".join(part.itertext()): float(part.attrib["y"])
        for part in ET.fromstring(to_svg([report])).iter(f"{NAMESPACE}text")  # noqa: S314 - our own text
    }
    axis = words["tokens a sequence"] - 32
    assert words[f"asked: {context.asked:,}"] < axis
    assert words[f"fits up to {fit.max_context:,}"] < axis
