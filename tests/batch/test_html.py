"""The HTML report in a real browser: sorted, filtered, explained, offline, at ten thousand rows, whatever a repository writes."""

from __future__ import annotations

import json
import re
import struct
import zlib
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from chromium import PROGRAM, Chromium
from fixture_models import snapshot_of

from hubaudit.batch.plan import Plan
from hubaudit.batch.sinks.html import MOST_ROWS, open_sink
from hubaudit.batch.work import _worked_out
from hubaudit.fit.catalogue import hardware_named, hardware_of_size
from hubaudit.types import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("llama-3.1-8b", "qwen2-0.5b-instruct", "mixtral-8x7b-v0.1", "bert-base-uncased", "gpt-oss-20b")
PLAN = Plan(
    workloads=(Workload(), Workload(batch_size=8, prompt_tokens=4096)),
    hardware=(hardware_named("4090"), hardware_of_size("80GiB")),
)
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>&amp;'\"`${1}<!--\u2028"
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")


@cache
def document(name: str) -> dict[str, Any]:
    """What an audit of a fixture puts into the journal."""
    return _worked_out(snapshot_of(name), PLAN)


def row(name: str, of: str, position: int = 0) -> dict[str, Any]:
    """A row of the journal."""
    return {
        "name": name,
        "position": position,
        "state": "audited",
        "at": "2026-01-01T00:00:00+00:00",
        "document": document(of),
    }


def failure(name: str, message: str, state: str = "later") -> dict[str, Any]:
    """A row without an answer."""
    shown = {
        "subject": {"repo_id": name, "commit": None},
        "error": {"kind": "network", "message": message, "hint": HOSTILE},
    }
    return {"name": name, "position": 0, "state": state, "at": "2026-01-01T00:00:00+00:00", "document": shown}


def page(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The report of these rows."""
    sink = open_sink(folder, json.loads(json.dumps(PLAN.as_json())))
    for one in rows:
        sink.put(one)
    assert sink.close() == ("report.html",)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One for all tests of this file."""
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten thousand models, one of them a failure."""
    rows = [row(f"org{number % 97}/model-{number:05}", NAMES[number % len(NAMES)]) for number in range(9_999)]
    return page(tmp_path_factory.mktemp("large"), [*rows, failure("org/broken", "it broke")])


def first_names(browser: Chromium, count: int = 3) -> list[str]:
    """The first names in the table, as they stand."""
    code = f"[...document.querySelectorAll('tbody tr[data-at] td:first-child')].slice(0, {count}).map(one => one.textContent)"
    found: list[str] = browser.value(code)
    return found


def column(browser: Chromium, name: str) -> list[str]:
    """What is seen of a column."""
    code = (
        f"(() => {{ const at = [...document.querySelectorAll('th')].findIndex(one => one.dataset.column === {json.dumps(name)});"
        " return [...document.querySelectorAll('tbody tr[data-at]')].map(one => one.cells[at].textContent) })()"
    )
    found: list[str] = browser.value(code)
    return found


def text(browser: Chromium, selector: str) -> str:
    """What an element says."""
    found: str = browser.value(f"document.querySelector({json.dumps(selector)}).innerText")
    return found


@needs_browser
def test_ten_thousand_rows_sort_and_filter(browser: Chromium, large: Path) -> None:
    """A click sorts, another turns round; words filter; what is drawn stays small, and each step takes less than a second or two."""
    browser.open(large)
    assert text(browser, "#count").startswith("10,000 of 10,000 models, ")
    assert browser.value("document.querySelectorAll('tbody tr').length") < 100
    browser.click("th[data-column=total] button")
    assert browser.value("document.querySelector('th[data-column=total]').ariaSort") == "descending"
    assert all(name.startswith("org") for name in first_names(browser))
    largest = column(browser, "total")[0]
    assert largest == column(browser, "total")[20]
    browser.click("th[data-column=total] button")
    assert column(browser, "total")[0] != largest
    browser.click("th[data-column=name] button")
    assert first_names(browser) == ["org/broken", "org0/model-00000", "org0/model-00097"]
    browser.click("#query")
    browser.type("org96/ llama")
    assert set(column(browser, "architecture")) == {"LlamaForCausalLM"}
    assert text(browser, "#count").startswith("21 of 10,000 models")
    seconds = browser.value(
        "(() => { const before = performance.now(); const field = document.getElementById('query'); field.value = '1';"
        " field.dispatchEvent(new Event('input')); document.querySelector('th[data-column=total] button').click();"
        " return (performance.now() - before) / 1000 })()"
    )
    assert seconds < 5  # 0.1 where the machine has nothing else to do
    assert browser.complaints() == []


@needs_browser
def test_scrolling_draws_what_is_in_sight(browser: Chromium, large: Path) -> None:
    """The last of ten thousand rows is there when it is scrolled to."""
    browser.open(large)
    browser.value("document.getElementById('scroller').scrollTop = 1e9")
    browser.wait("[...document.querySelectorAll('tbody tr[data-at]')].some(one => one.dataset.at === '9999')")
    assert "org/broken" in first_names(browser, 1000)
    assert "org0/model-00000" not in first_names(browser, 1000)


@needs_browser
def test_the_fits_matrix(browser: Chromium, tmp_path: Path) -> None:
    """Models × devices, with the verdict that the journal has, for the workload that is chosen; a verdict on a device filters."""
    path = page(tmp_path, [row(name, name) for name in NAMES])
    for at in (0, 1):
        browser.open(path, f"#view=fits&w={at}")
        for place, device in enumerate(("GeForce RTX 4090", "80 GiB")):
            verdicts = [document(name)["audits"][at]["fit"][place]["verdict"] for name in NAMES]
            head = browser.value("[...document.querySelectorAll('th')].map(one => one.dataset.column)")
            assert len(head) == 5
            assert column(browser, head[3 + place]) == [verdict.replace("unknown", "?") for verdict in verdicts]
            browser.open(path, f"#view=fits&w={at}&device={place}&verdict=no")
            assert text(browser, "#count").startswith(f"{verdicts.count('no')} of 5")
            browser.open(path, f"#view=fits&w={at}")
            assert device.split()[0] in head[3 + place]


@needs_browser
def test_a_click_explains_one_model(browser: Chromium, tmp_path: Path) -> None:
    """Formula, the same with its numbers, exactness, sources and findings; the address leads back to it."""
    path = page(tmp_path, [row(name, name) for name in NAMES])
    browser.open(path)
    browser.click("tbody tr[data-at='0'] td:first-child button")
    said = text(browser, "#detail")
    audit = document("llama-3.1-8b")["audits"][0]
    for part in audit["estimate"]["components"]:
        assert f"{part['id']}: {part['bytes']:,} B" in said
        assert f"= {part['formula']}" in said
        assert all(source in said for source in part["sources"])
    assert re.search(r"= \d+ \* \d+", said) or re.search(r"= \d+", said)
    assert "8,030,261,248" in said
    assert browser.value("new URLSearchParams(location.hash.slice(1)).get('open')") == "llama-3.1-8b"
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert browser.value("document.getElementById('detail').hidden") is True


@needs_browser
def test_the_histogram_counts_what_is_shown(browser: Chromium, large: Path) -> None:
    """Its bars add up to the models with an estimate, before and after a filter."""
    total = "[...document.querySelectorAll('#histogram rect')].reduce((all, one) => all + Number(one.dataset.count), 0)"
    browser.open(large)
    assert browser.value(total) == 9_999
    browser.open(large, "#q=bert")
    assert browser.value(total) == 2_000


@needs_browser
def test_words_of_strangers_stay_words(browser: Chromium, tmp_path: Path) -> None:
    """Markup in names, messages and facts is shown as it is written, and runs nothing; nor would it, if it were markup."""
    bad = deepcopy(row(f"evil/{HOSTILE}", "llama-3.1-8b"))
    bad["document"]["facts"] |= {"architecture": HOSTILE, "model_type": HOSTILE, "library": HOSTILE, "dtype": HOSTILE}
    bad["document"]["findings"] = [{"rule": HOSTILE, "severity": HOSTILE, "message": HOSTILE, "where": "", "help": ""}]
    for part in bad["document"]["audits"][0]["estimate"]["components"]:
        part |= {"id": HOSTILE, "formula": HOSTILE, "exactness": HOSTILE, "sources": [HOSTILE]}
        part["inputs"] = {HOSTILE: 1, "__proto__": 2, "constructor": 3}
    path = page(tmp_path, [bad, failure(HOSTILE, HOSTILE), failure("\ud800", "\ud800\x1b[31m", "bug")])
    browser.events.clear()
    browser.open(path)
    assert first_names(browser)[0].startswith("evil/</script><script>")
    for at in range(3):
        browser.click(f"tbody tr[data-at='{at}'] td:first-child button")
        assert "</script>" in text(browser, "#detail") or at == 2
    assert browser.value("window.hacked") is None
    assert browser.value("document.images.length + document.scripts.length") == 2
    assert browser.complaints() == []
    browser.value(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked=2\"><style>body{}</style>')"
    )
    browser.value("new Promise(done => setTimeout(done, 200))")
    assert browser.value("window.hacked") is None
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())
    browser.events.clear()


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_it_reads_in_light_and_dark(browser: Chromium, dark: bool, tmp_path: Path) -> None:
    """The picture has the colour of its scheme, and text on every coloured ground stands out by WCAG's 4.5 to 1."""
    path = page(tmp_path, [*(row(name, name) for name in NAMES), failure("a/b", "it broke")])
    browser.open(path, "#view=fits&open=llama-3.1-8b", dark=dark)
    picture = tmp_path / "picture.png"
    browser.picture(picture)
    width, height, corner = seen(picture)
    assert (width, height) == (1280, 860)
    assert corner == ((0x14, 0x17, 0x1A) if dark else (255, 255, 255))
    pairs = browser.value(
        "[...document.querySelectorAll('h1, p, td, th button, label, .verdict, dt, dd, code, aside li')].map(one => {"
        " const style = getComputedStyle(one); let ground = one;"
        " while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;"
        " return [style.color, getComputedStyle(ground).backgroundColor] })"
    )
    assert len(pairs) > 50
    for colours in {tuple(pair) for pair in pairs}:
        assert contrast(*colours) >= 4.5, colours


def contrast(one: str, other: str) -> float:
    """As WCAG 2.2 defines it, for two `rgb(…)`."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of sRGB."""
    parts = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def seen(picture: Path) -> tuple[int, int, tuple[int, ...]]:
    """Width, height and the first pixel of a PNG, whose first line no filter but Sub or none can have changed there."""
    content = picture.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    data, at = b"", 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        if content[at + 4 : at + 8] == b"IDAT":
            data += content[at + 8 : at + 8 + length]
        at += length + 12
    return width, height, tuple(zlib.decompress(data)[1:4])


def test_the_page_is_whole_and_allows_nothing_from_elsewhere(tmp_path: Path) -> None:
    """No address in it, and a policy that names its one script and its one style."""
    content = page(tmp_path, [failure(HOSTILE, HOSTILE)]).read_text(encoding="utf-8")
    assert "default-src 'none'" in content
    assert content.count("'sha256-") == 2
    assert content.count("</script>") == 2
    assert not re.search(r"(src|href)=[\"']?(http|//)", content)
    assert "@@" not in content


def test_a_page_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a browser can show are counted and said, not drawn."""
    monkeypatch.setattr("hubaudit.batch.sinks.html.MOST_ROWS", 3)
    content = page(tmp_path, [failure(f"m{number}", "x") for number in range(5)]).read_text()
    assert "the first 3 of them on this page" in content
    assert '"m2"' in content
    assert '"m3"' not in content
    assert MOST_ROWS >= 10_000
