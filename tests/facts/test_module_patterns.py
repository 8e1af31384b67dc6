"""Module-name patterns: they match as Python's re does, and no pattern takes long."""

from __future__ import annotations

import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.facts.module_patterns import matches_regex, matches_target

ATOMS = (
    "a", "b", r"\.", ".", "[ab]", "[^a]", r"\d", "[0-9]", "(a|b)", "(?:ab|c)", "a*", "b+", ".*", "(a|b.)*", "a?", "a{2}", "b{1,3}", "(a|)", ".*?",
)  # fmt: skip
PATTERNS = st.tuples(
    st.sampled_from(("", "^")), st.lists(st.sampled_from(ATOMS), max_size=6).map("".join), st.sampled_from(("", "$"))
).map("".join)


@settings(deadline=None)
@given(PATTERNS, st.text("abc.1", max_size=8))
def test_a_pattern_of_the_dialect_matches_as_in_python(pattern: str, name: str) -> None:
    """Whatever is built of the dialect's parts says the same as ``re.match``."""
    assert matches_regex(pattern, name) is (re.match(pattern, name) is not None)


@settings(deadline=None)
@given(st.text("ab.*+?|()[]{}^$\\d-,1:=!", max_size=12), st.text("ab1.", max_size=6))
def test_an_arbitrary_pattern_is_matched_rightly_or_not_at_all(pattern: str, name: str) -> None:
    """Noise never raises; where an answer is given, it is the one of ``re``."""
    answer = matches_regex(pattern, name)
    if answer is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # re warns of signs that it may give a meaning one day
            assert answer is (re.match(pattern, name) is not None)


@pytest.mark.parametrize(
    ("target", "module", "expected"),
    [
        # Kimi-K2.5's and Kimi-K3's `ignore`, and targets of the kind that mixed-precision recipes write.
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "language_model.model.layers.0.mlp.up_proj", True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "language_model.model.layers.1.mlp.experts.0.up_proj", False),
        (r"re:.*self_attn.*", "language_model.model.layers.0.self_attn.q_proj", True),
        (r"re:model\.layers\.(0|1|2[0-9])\..*", "model.layers.25.mlp.up_proj", True),
        (r"re:model\.layers\.(0|1|2[0-9])\..*", "model.layers.3.mlp.up_proj", False),
        ("lm_head", "lm_head", True),
        ("lm_head", "model.lm_head", False),
        ("Linear", "model.layers.0.mlp.up_proj", False),
    ],
)
def test_targets_of_real_configs(target: str, module: str, expected: bool) -> None:
    """Real targets name the modules that compressed-tensors' own ``match_name`` would."""
    assert matches_target(target, module) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?=a)",
        r"(a)\1",
        r"\bword",
        "a**",
        "(((",
        "[",
        "a{99999}",
        "a{1,}",
        "a{2,1}",
        "[]",
        "[b-a]",
        "[[a]]",
        "x" * 5000,
    ],
)
def test_what_is_not_understood_is_said_so(pattern: str) -> None:
    """Lookaheads, back references, boundaries, broken and oversized patterns give no answer."""
    assert matches_regex(pattern, "a") is None


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*$", r"(.*a){12}$", r".*.*.*.*.*.*b$"])
def test_a_hostile_pattern_takes_linear_time(pattern: str) -> None:
    """Patterns that make a backtracking engine run for years are answered; ten times the name takes about ten times as long, not 2^10 times."""
    started = time.process_time()
    assert matches_regex(pattern, "a" * 300 + "!") is False
    short = time.process_time() - started
    started = time.process_time()
    assert matches_regex(pattern, "a" * 3000 + "!") is False
    assert time.process_time() - started < 100 * max(short, 0.01)
