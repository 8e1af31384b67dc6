"""A card's bytes: whatever they are, only what stands between the markers changes, and writing twice is writing once."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.card import document
from hubaudit.card.document import Card, diff, parse_card, with_section
from hubaudit.errors import CannotAuditError

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTION = "<!-- hubaudit:begin repo=a/b -->\n## Memory requirements\n\none\n<!-- hubaudit:end -->\n"
OTHER = SECTION.replace("one", "two\nthree")
WORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60).filter(
    lambda text: "<!-- hubaudit" not in text
)


def write(content: bytes, section: str = SECTION) -> bytes:
    """The file after the section was written."""
    return with_section(parse_card(content, "x.md"), section, "x.md").to_bytes()


@given(st.binary(max_size=200))
def test_bytes_come_back(content: bytes) -> None:
    """What is read and not changed is the same to the byte, in whatever encoding."""
    if b"hubaudit:" not in content:
        assert parse_card(content, "x.md").to_bytes() == content


@given(WORDS, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_writing_twice_is_writing_once(text: str, newline: str, encoding: str) -> None:
    """The second time nothing changes, and what was there before is still there, in its place and to the byte."""
    content = text.replace("\r", "").replace("\n", newline).encode(encoding)
    if any(mark in text for mark in ("```", "~~~")):
        return  # a block of code that nobody closes goes on to the end of the file, section and all
    once = write(content)
    assert write(once) == once
    assert once.startswith(content)
    changed = write(once, OTHER)
    assert changed.startswith(content)
    assert write(changed, SECTION) == once


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("after", ["", "{n}", "{n}## Next{n}text without an end"])
def test_line_endings_are_the_files(newline: str, after: str) -> None:
    """The section takes those of the file, and what follows it is as it was."""
    before = f"# A{newline}{newline}"
    marked = SECTION.rstrip("\n").replace("\n", newline)
    tail = after.format(n=newline)
    content = (before + marked + tail).encode()
    assert write(content) == content
    changed = write(content, OTHER).decode()
    assert changed.startswith(before)
    assert changed.endswith(f"<!-- hubaudit:end -->{tail}")
    assert set(changed.replace(newline, "")) & {"\n", "\r"} == set()


def test_mixed_endings_stay_mixed() -> None:
    """The section takes the most frequent one."""
    content = b"a\r\nb\r\nc\nd"
    written = write(content)
    assert written.startswith(content)
    assert written[len(content) :].count(b"\r\n") == written[len(content) :].count(b"\n")


def test_latin_1() -> None:
    """A card that is no UTF-8 keeps its bytes."""
    content = "Größe: 7 Mrd.\n".encode("latin-1")
    assert write(content).startswith(content)


def test_attributes() -> None:
    """What the marker says of how the section was made."""
    card = parse_card(b"<!-- hubaudit:begin repo=a/b gpus=t4,h100 training=yes -->\n<!-- hubaudit:end -->", "x.md")
    assert card.attributes == {"repo": "a/b", "gpus": "t4,h100", "training": "yes"}


def test_a_marker_in_code_is_an_example() -> None:
    """A card that shows how to use markers has none by that."""
    shown = f"```html\n{SECTION}```\n".encode()
    assert not parse_card(shown, "x.md").has_section
    assert write(shown).startswith(shown)
    assert write(write(shown)) == write(shown)


@pytest.mark.parametrize(
    "text",
    [
        "<!-- hubaudit:begin -->\n",
        "<!-- hubaudit:end -->\n",
        SECTION + SECTION,
        "<!-- hubaudit:end -->\n<!-- hubaudit:begin -->\n",
    ],
)
def test_markers_that_do_not_pair(text: str) -> None:
    """Refused: what is between them cannot be known."""
    with pytest.raises(CannotAuditError, match="markers"):
        parse_card(text.encode(), "x.md")


def test_the_diff() -> None:
    """Unified, with the file's name, and empty where nothing changes."""
    card: Card = parse_card(b"# A\r\n", "x.md")
    new = with_section(card, SECTION, "x.md")
    text = diff(card, new, "x.md")
    assert text.startswith("--- a/x.md\n+++ b/x.md\n")
    assert "+## Memory requirements\n" in text
    assert "\r" not in text
    assert diff(new, new, "x.md") == ""


def test_a_diff_moves_no_cursor() -> None:
    """What a stranger wrote near the section is shown escaped; tabs and letters are themselves, and lines stay lines."""
    card = parse_card("# Modèle\t1\n\x1b[2J\x9b1m\u202e\u2028\0\n".encode(), "x.md")
    text = diff(card, with_section(card, SECTION, "x.md"), "a\x1b[2J.md")
    assert "# Modèle\t1\n" in text
    assert r"\x1b[2J\x9b1m\u202e\u2028\x00" in text
    assert text.replace("\n", "").replace("\t", "").isprintable()


def test_a_diff_cuts_endless_lines() -> None:
    """A line of megabytes beside the section fills no terminal."""
    card = parse_card(b"x" * 3_000_000 + b"\n", "a.md")
    text = diff(card, with_section(card, SECTION, "a.md"), "a.md")
    assert max(map(len, text.splitlines())) == 500


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("behind", ["", "text\n", "a\nb\nc\nd\ne\n", "x\n" * 50])
@pytest.mark.parametrize("before", ["", "# A\n", "a\nb\nc\nd\ne\n", "x\n" * 50])
def test_the_diff_is_difflibs_own(before: str, behind: str, newline: str) -> None:
    """Though only what is near the section is compared: the same hunks with the same numbers, for a section in every place."""
    for was in ("", SECTION.replace("one", "two"), SECTION.replace("\n", "\nmore\n", 1), "x\n" + SECTION):
        card = parse_card((before + was + behind).replace("\n", newline).encode(), "x.md")
        new = with_section(card, SECTION, "x.md")
        sides = ([f"{line}\n" for line in one.text.replace(newline, "\n").split("\n")] for one in (card, new))
        assert diff(card, new, "x.md") == "".join(unified_diff(*sides, "a/x.md", "b/x.md"))


@pytest.mark.parametrize("place", ["before", "inside", "behind"])
def test_a_card_of_a_million_lines_is_compared_near_its_section_only(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal lines beside the section are left out before anything is compared line by line, and so is a section that is far too long."""
    compared = []

    def counted(before: list[str], after: list[str], *names: str, n: int) -> Iterator[str]:
        compared.append((len(before), len(after)))
        return unified_diff(before, after, *names, n=n)

    monkeypatch.setattr(document, "unified_diff", counted)
    many = "x\n\n" * 100_000
    start, _, end = SECTION.partition("\n")
    text = {"before": many + SECTION, "inside": f"{start}\n{many}{end}", "behind": SECTION + many}[place]
    card = parse_card(text.replace("one", "two").encode(), "x.md")
    shown = diff(card, with_section(card, SECTION, "x.md"), "x.md")
    assert len(shown.splitlines()) < 5_100
    assert all(max(sizes) < 100 for sizes in compared)
    assert shown.endswith("\\ more lines than are shown\n") == (place == "inside")
