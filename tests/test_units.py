"""Sizes and counts for people, and back."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.units import format_bytes, format_count, format_gib, parse_bytes

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
SIZES = st.integers(0, 2**63) | st.sampled_from([1, KIB, MIB, GIB, TIB]).flatmap(
    lambda unit: st.integers(-300, 300).map(lambda off: max(0, 1024 * unit + off * unit // 200))
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512", 512),
        ("512B", 512),
        ("24GiB", 24 * GIB),
        ("24G", 24 * GIB),
        ("24gib", 24 * GIB),
        ("24 GiB", 24 * GIB),
        (" 24GiB ", 24 * GIB),
        ("24GB", 24 * 10**9),
        ("24gb", 24 * 10**9),
        ("1.5GiB", 3 * GIB // 2),
        ("0.1GB", 10**8),
        ("80K", 80 * KIB),
        ("80KB", 80_000),
        ("80KiB", 80 * KIB),
        ("3M", 3 * MIB),
        ("3MB", 3 * 10**6),
        ("1T", TIB),
        ("1TB", 10**12),
        ("1TiB", TIB),
        ("0.000000001GB", 1),
        ("999999999999999999TiB", 999999999999999999 * TIB),
    ],
)
def test_sizes_as_people_write_them(text: str, size_bytes: int) -> None:
    """Decimal units are decimal, binary ones and bare letters binary, and fractions are exact."""
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", " ", "GiB", "-1GiB", "+1", "1e9", "1,5GiB", "24 GiB x", "24GiBs", "24XB", "0", "0GiB", "0.4B", "nan", "inf",
     "0x10", "1.", ".5GiB", "1.2.3", "²", "٣", "9" * 19, "1." + "9" * 19, "1\n2"],
)  # fmt: skip
def test_what_is_no_size(text: str) -> None:
    """Refused with the text and what to write instead; less than a byte too."""
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(text)


@given(st.text())
def test_any_text_is_a_size_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        assert parse_bytes(text) >= 1
    except ValueError as error:
        assert "not a size" in str(error)  # noqa: PT017 - either end is right


@given(st.integers(1, 10**18 - 1), st.sampled_from([("", 1), ("GiB", GIB), ("GB", 10**9), ("T", TIB)]))
def test_whole_numbers_are_exact(number: int, unit: tuple[str, int]) -> None:
    """No float is on the way."""
    assert parse_bytes(f"{number}{unit[0]}") == number * unit[1]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (12_288, "12.00 KiB"),
        (988_065_536, "942.29 MiB"),
        (2 * GIB - 1, "2.00 GiB"),
        (MIB - 1, "1.00 MiB"),
        (GIB - 1, "1.00 GiB"),
        (GIB - 6 * KIB, "1023.99 MiB"),
        (TIB - 1, "1.00 TiB"),
        (1025 * TIB, "1025.00 TiB"),
        (-1, "-1 B"),
        (-3 * GIB // 2, "-1.50 GiB"),
        # A 7,000,559,616-parameter model at 4, 2, 1 and 1/2 bytes: 26.08, 13.04, 6.52 and 3.26 GiB.
        (4 * 7_000_559_616, "26.08 GiB"),
        (2 * 7_000_559_616, "13.04 GiB"),
        (7_000_559_616, "6.52 GiB"),
        (7_000_559_616 // 2, "3.26 GiB"),
    ],
)
def test_sizes_for_people(size_bytes: int, text: str) -> None:
    """Two decimals, in a unit in which the number is below 1024, and bytes as they are."""
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 K"),
        (494_032_768, "494.03 M"),
        (7_000_559_616, "7.00 B"),
        (999_994, "999.99 K"),
        (999_995, "1.00 M"),
        (10**12, "1.00 T"),
        (-5, "-5"),
        (-2_500_000, "-2.50 M"),
    ],
)
def test_counts_for_people(count: int, text: str) -> None:
    """Thousands by thousands, never "1000.00" of one unit."""
    assert format_count(count) == text


@given(SIZES)
def test_a_shown_size_is_the_nearest(size_bytes: int) -> None:
    """What is shown differs by half of its last digit at most, and no other two decimals would be nearer."""
    number, unit = format_bytes(size_bytes).split()
    factor = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}[unit]
    assert abs(Fraction(number) - Fraction(size_bytes, factor)) <= (Fraction(0) if unit == "B" else Fraction(1, 200))
    assert Fraction(number) < 1024 or unit == "TiB"
    assert Fraction(number) >= 1 or unit == "B"


@given(st.integers(-(2**60), 2**60))
def test_the_sign_is_only_a_sign(value: int) -> None:
    """A negative headroom reads as its amount with a minus."""
    for shown in (format_bytes, format_gib, format_count):
        assert shown(-abs(value)).removeprefix("-") == shown(abs(value))


@given(SIZES)
def test_gibibytes_are_rounded_half_up(size_bytes: int) -> None:
    """Exactly, for sizes beyond what a float holds too."""
    hundredths = Fraction(size_bytes * 100, GIB)
    assert Fraction(format_gib(size_bytes)) * 100 == int(hundredths + Fraction(1, 2))


@given(SIZES)
def test_what_is_shown_can_be_read_back(size_bytes: int) -> None:
    """To within the two decimals."""
    if size_bytes:
        back = parse_bytes(format_bytes(size_bytes))
        assert abs(back - size_bytes) * 200 <= size_bytes + 200
