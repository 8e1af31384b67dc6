"""Searching on a scale gives what trying every number gives, and asks few questions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hubaudit.fit.search import largest, longest_by_period


def tried(weights: dict[int, int], limit: int) -> int:
    """The largest number that weighs at most the limit, by trying all."""
    return max((number for number, weight in weights.items() if weight <= limit), default=0)


@given(
    steps=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    least=st.integers(1, 9),
    limit=st.integers(0, 1500),
)
def test_the_largest_is_found_on_every_rising_scale(steps: list[int], least: int, limit: int) -> None:
    """Straight, bent, in stairs or flat: the same answer as trying all numbers."""
    weights, total = {}, 0
    for at, step in enumerate(steps):
        total += step
        weights[least + at] = total
    assert largest(weights.__getitem__, limit, least, least + len(steps) - 1) == tried(weights, limit)


@given(slope=st.integers(1, 10**9), start=st.integers(0, 10**12), limit=st.integers(0, 10**18))
def test_a_straight_scale_takes_a_handful_of_questions(slope: int, start: int, limit: int) -> None:
    """Ends, a hit, and its neighbour."""
    asked: list[int] = []

    def weigh(number: int) -> int:
        asked.append(number)
        return start + slope * number

    found = largest(weigh, limit, 1, 2**30)
    assert len(asked) <= 5
    expected = max(0, (limit - start) // slope)
    assert found == min(expected, 2**30)


@given(power=st.integers(2, 6), limit=st.integers(1, 2**120))
def test_a_bent_scale_takes_at_most_twice_what_bisection_takes(power: int, limit: int) -> None:
    """However far from a line it is."""
    asked: list[int] = []

    def weigh(number: int) -> int:
        asked.append(number)
        return int(number**power)

    found = largest(weigh, limit, 1, 2**20)
    assert len(asked) <= 2 + 2 * 20
    assert found**power <= limit
    assert found == 2**20 or (found + 1) ** power > limit


@given(
    entry_tokens=st.integers(1, 7),
    entry_bytes=st.integers(0, 30),
    waiting_bytes=st.integers(0, 30),
    plain_bytes=st.integers(0, 3),
    window=st.integers(1, 20),
    least=st.integers(1, 12),
    length=st.integers(0, 60),
    limit=st.integers(0, 400),
)
def test_the_longest_is_found_where_entries_wait_to_be_full(
    entry_tokens: int,
    entry_bytes: int,
    waiting_bytes: int,
    plain_bytes: int,
    window: int,
    least: int,
    length: int,
    limit: int,
) -> None:
    """One token before the first that does not fit, as counting up from the shortest finds it."""

    def weigh(tokens: int) -> int:
        full = tokens // entry_tokens * entry_bytes
        return full + tokens % entry_tokens * waiting_bytes + min(tokens, window) * plain_bytes

    most = least + length
    expected = 0
    for tokens in range(least, most + 1):
        if weigh(tokens) > limit:
            break
        expected = tokens
    assert longest_by_period(weigh, limit, least, most, entry_tokens) == expected
