"""Integer formulas: what they accept, and what they compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.estimate.expression import evaluate, names_in


def test_arithmetic_is_pythons() -> None:
    """Precedence, floor division and the three functions are those of Python's integers."""
    assert evaluate("2 * layers + 7 // 2 - min(a, b) + max(a, b)", {"layers": 10, "a": 3, "b": 5}) == 25
    assert evaluate("ceil_div(n, 64)", {"n": 65}) == 2


@given(st.integers(0, 2**80), st.integers(1, 2**40))
def test_ceil_div_is_the_smallest_that_covers(numerator: int, denominator: int) -> None:
    """ceil_div(n, d) is the least k with k × d ≥ n, at any size."""
    blocks = evaluate("ceil_div(n, d)", {"n": numerator, "d": denominator})
    assert blocks * denominator >= numerator > (blocks - 1) * denominator


@pytest.mark.parametrize(
    "formula",
    ["__import__('os')", "x.y", "2 ** 9", "1.5 * n", "n / 2", "[n]", "n if n else 1", "f(n)", "min(n, key=n)", "'a'"],
)
def test_anything_else_is_refused(formula: str) -> None:
    """No attribute, call, float or power gets into a formula."""
    with pytest.raises(ValueError, match=r".+"):
        evaluate(formula, {"n": 1, "x": 1})


def test_a_name_without_a_value_is_an_error() -> None:
    """A formula never fills in a missing input."""
    with pytest.raises(ValueError, match="no value for heads"):
        evaluate("layers * heads", {"layers": 1})


def test_names_are_the_inputs_only() -> None:
    """Functions are not inputs."""
    assert names_in("min(a, b) * ceil_div(c, 2)") == {"a", "b", "c"}
