"""The largest number whose weight is within a limit, asking for as few weights as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def largest(weigh: Callable[[int], int], limit: int, least: int, most: int) -> int:
    """The largest of ``least … most`` that weighs at most ``limit``, for a ``weigh`` that never falls; 0 where none does.

    Memory is all but linear in what is asked, so a straight line through the ends of the bracket hits at once or nearly so. Where it
    does not halve the bracket the middle is tried next, which bounds the number of questions by twice that of plain bisection.
    """
    low, low_bytes = least, weigh(least)
    if low_bytes > limit:
        return 0
    high, high_bytes = most, weigh(most)
    if high_bytes <= limit:
        return most
    by_line = True
    while high - low > 1:
        width = high - low
        step = (limit - low_bytes) * width // (high_bytes - low_bytes) if by_line else width // 2
        guess = min(max(low + step, low + 1), high - 1)
        weight = weigh(guess)
        if weight <= limit:
            low, low_bytes = guess, weight
        else:
            high, high_bytes = guess, weight
        by_line = not by_line or (high - low) * 2 <= width
    return low


def longest_by_period(weigh: Callable[[int], int], limit: int, least: int, most: int, period: int) -> int:
    """The largest of ``least … most`` up to which every number weighs at most ``limit``; 0 where not even ``least`` does.

    For tokens that wait until an entry of the cache is full, so that one token more can weigh less. One before a multiple of the period
    nothing can wait longer and everything else only grows: what fits there fits at every shorter length. So whole periods are searched,
    and the tokens of the next one tried in turn.
    """
    if weigh(least) > limit:
        return 0
    first, last = least // period + 1, (most + 1) // period
    periods = largest(lambda count: weigh(count * period - 1), limit, first, last) if first <= last else 0
    found = max(least, periods * period - 1)
    while found < most and weigh(found + 1) <= limit:
        found += 1
    return found
