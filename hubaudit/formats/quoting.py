"""How text from a file may stand in a message: a hostile name must not move the terminal's cursor or fill the screen."""

from __future__ import annotations

LONGEST = 120


def shown(value: object) -> str:
    """A value from a file, quoted, escaped to ASCII, and cut to ``LONGEST`` characters."""
    try:
        quoted = ascii(value)
    except ValueError:  # Python does not print a number of thousands of digits
        quoted = (
            f"a number of {value.bit_length():,} bits" if isinstance(value, int) else "a value of thousands of digits"
        )
    return quoted if len(quoted) <= LONGEST else quoted[: LONGEST - 3] + "..."
