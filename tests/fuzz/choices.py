"""Bytes as choices: so that a fuzzer that knows bytes only can make JSON of any kind, or change real JSON in a few places."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

INTEGERS = (
    0, 1, 2, 3, 4, 7, 8, 16, 24, 32, 64, 128, 256, 1024, 4096, 32_000, 151_936, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64,
    10**18, 10**30, 10**300, -1, -2, -128, -(2**31), -(2**63), -(10**18),
)  # fmt: skip
FLOATS = (
    0.0,
    -0.0,
    0.5,
    1.0,
    1.5,
    2.0,
    1e-9,
    4096.0,
    1e18,
    1e300,
    -1.0,
    -0.5,
    float("nan"),
    float("inf"),
    float("-inf"),
)
TEXTS = (
    "", "0", "1", "32", "-1", "1e9", "auto", "none", "null", "true", "bfloat16", "float32", "torch.float8_e4m3fn", "int4", "full_attention",
    "sliding_attention", "linear_attention", "mamba", "attention", "conv", "default", "yarn", "=1+1", "|", "<script>", "\x1b[2J", "\u202e", "\ud800", "\0",
    "../../etc/passwd", "x" * 5000, "LlamaForCausalLM", "text_config",
)  # fmt: skip
_DEEPEST = 5
_LONGEST = 12


class Choices:
    """A stream of choices; after the last byte every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, count: int) -> int:
        """A number from 0 to ``count - 1``."""
        wide = 1 if count <= 256 else 2
        raw = self._data[self._at : self._at + wide]
        self._at += wide
        return int.from_bytes(raw, "little") % count

    def pick(self, among: Sequence[Any]) -> Any:
        """One of them."""
        return among[self.below(len(among))]

    def rest(self) -> bytes:
        """What was not used for choices."""
        return self._data[self._at :]

    @property
    def is_spent(self) -> bool:
        """Whether no byte is left."""
        return self._at >= len(self._data)


def value(choices: Choices, keys: Sequence[str], depth: int = 0) -> Any:
    """Any JSON value, as Python's ``json`` would read it: NaN, infinities, huge numbers and half characters too."""
    kind = choices.below(12 if depth < _DEEPEST else 8)
    if kind < 3:
        return choices.pick(INTEGERS)
    if kind == 3:
        return choices.below(65_536)
    if kind < 8:
        return choices.pick((choices.pick(FLOATS), choices.pick(TEXTS), None, choices.below(2) == 1))
    if kind == 8:
        return [value(choices, keys, _DEEPEST)] * choices.pick((0, 1, 2, 3, 24, 48, 5000))
    if kind == 9:
        return [value(choices, keys, depth + 1) for _ in range(choices.below(_LONGEST))]
    if kind == 10:
        return {choices.pick(keys): value(choices, keys, depth + 1) for _ in range(choices.below(_LONGEST))}
    return nested(choices.pick((2, 50, 400)), in_lists=choices.below(2) == 1)


def nested(depth: int, *, in_lists: bool) -> Any:
    """A value so deep."""
    made: Any = 1
    for _ in range(depth):
        made = [made] if in_lists else {"text_config": made}
    return made


def changed(choices: Choices, base: Any, keys: Sequence[str], most: int = 6) -> Any:
    """``base`` with up to ``most`` values replaced, removed, added, wrapped or turned into something near."""
    made = copy.deepcopy(base)
    for _ in range(choices.below(most + 1)):
        if isinstance(made, dict | list):
            _change(choices, made, keys)
    return made


def _change(choices: Choices, at: Any, keys: Sequence[str]) -> None:
    while True:
        places = list(at) if isinstance(at, dict) else list(range(len(at)))
        if isinstance(at, dict) and (not places or choices.below(4) == 0):
            at[choices.pick(keys)] = value(choices, keys)
            return
        if not places:
            at.append(value(choices, keys))
            return
        key = choices.pick(places)
        if isinstance(at[key], dict | list) and at[key] and choices.below(3):
            at = at[key]
            continue
        break
    way = choices.below(8)
    if way == 0:
        del at[key]
    else:
        at[key] = _near(choices, at[key], way) if way < 5 else value(choices, keys)


def _near(choices: Choices, old: Any, way: int) -> Any:
    """What is easily mistaken for ``old``."""
    if way == 1:
        return str(old)[:200]
    if way == 2:
        return [old]
    if isinstance(old, int | float):
        return (
            choices.pick((-old, old + 1, old * 2, old * 10**9, old - 1, 0, 1)) if old == old and abs(old) < 1e290 else 0
        )
    if isinstance(old, str):
        return choices.pick((old + "x", old.upper(), f"\x1b[31m{old}", ""))
    return choices.pick((None, {}, [], 0))
