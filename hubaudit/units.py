"""The only place where GiB, "24GB" and "0.5B" exist; everything else is int bytes, bits and counts."""

from __future__ import annotations

import re
from fractions import Fraction

_BYTE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-z]*)\s*", re.IGNORECASE)
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_COUNTS = (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3))


def parse_bytes(text: str) -> int:
    """Bytes of ``"24GB"`` (10⁹), ``"24GiB"`` or ``"24G"`` (2³⁰), ``"512"``.

    Raises:
        ValueError: the text is no size, or less than one byte.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _BYTE_UNITS:
        raise ValueError(f"not a size: {text!r} (write 24GiB, 24GB or a number of bytes)")
    size = int(Fraction(match[1]) * _BYTE_UNITS[match[2].lower()])
    if size < 1:
        raise ValueError(f"not a size: {text!r} is less than one byte")
    return size


def format_bytes(size_bytes: int) -> str:
    """A size for people, in binary units with two decimals: ``"1.86 GiB"``; below one KiB the bytes themselves."""
    for name, factor in _BINARY:
        if _reaches(size_bytes, factor, 2**10):
            return f"{_fixed(size_bytes, factor)} {name}"
    return f"{size_bytes} B"


def format_count(count: int) -> str:
    """A count for people: ``"494.03 M"``, ``"8.03 B"``; below a thousand the number itself."""
    for name, factor in _COUNTS:
        if _reaches(count, factor, 10**3):
            return f"{_fixed(count, factor)} {name}"
    return str(count)


def format_gib(size_bytes: int) -> str:
    """A size in GiB with two decimals and no unit, for columns whose head names it."""
    return _fixed(size_bytes, 2**30)


def _reaches(value: int, unit: int, step: int) -> bool:
    """Whether ``value`` is to be told in ``unit``: it is as large, or would round to that in the unit a ``step`` smaller."""
    return 200 * abs(value) + unit // step >= 200 * unit


def _fixed(value: int, unit: int) -> str:
    """``value / unit`` with two decimals, rounded half away from zero in integers, because floats would move the last digit of large sizes."""
    hundredths = (abs(value) * 200 + unit) // (2 * unit)
    return f"{'-' if value < 0 else ''}{hundredths // 100}.{hundredths % 100:02d}"
