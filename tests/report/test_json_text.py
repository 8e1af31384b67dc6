"""JSON for people's screens as much as for programs: the same value, and nothing that acts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.report.json_text import json_text

_TEXT = st.text(st.characters())  # half characters too
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
)


@given(value=_JSON, indent=st.sampled_from([None, 2]))
def test_the_same_value_and_only_printable_text(value: object, indent: int | None) -> None:
    """Python's own reader gets the value back, and each line is printable."""
    text = json_text(value, indent=indent)
    assert json.loads(text) == value
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("\x9b2J", r'"\u009b2J"'),
        ("\x7f", r'"\u007f"'),
        ("\u202egpj.exe", r'"\u202egpj.exe"'),
        ("\u2066x\u2069", r'"\u2066x\u2069"'),
        ("\ud800", r'"\ud800"'),
        ("\U000e0041", r'"\udb40\udc41"'),
        ("通义千问", '"通义千问"'),
        ("naïve 🤗", '"naïve 🤗"'),
    ],
)
def test_letters_stay_and_what_acts_is_escaped(name: str, printed: str) -> None:
    """RFC 8259 §7: any character may be escaped, those beyond U+FFFF as a pair."""
    assert json_text(name) == printed
