"""Integer formulas as text: the one that is shown is the one that is computed."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from hubaudit.syntax import expression_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType

_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Call,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
)


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


_FUNCTIONS = {"min": min, "max": max, "ceil_div": _ceil_div}


def evaluate(formula: str, inputs: Mapping[str, int]) -> int:
    """The value of ``formula``: integers, names of ``inputs``, ``+ - * //``, parentheses, ``min``, ``max`` and ``ceil_div``.

    Raises:
        ValueError: the formula holds anything else, or a name without a value.
    """
    code, names = _compiled(formula)
    missing = names - inputs.keys()
    if missing:
        raise ValueError(f"no value for {', '.join(sorted(missing))} in: {formula}")
    # Only the nodes above can be in the code, and its only globals are the three functions and the integers.
    value = eval(code, {"__builtins__": {}, **_FUNCTIONS, **inputs})  # noqa: S307
    if type(value) is not int:
        raise ValueError(f"not an integer formula: {formula}")
    return value


def names_in(formula: str) -> frozenset[str]:
    """The inputs that ``formula`` needs."""
    return _compiled(formula)[1]


@lru_cache(maxsize=4096)
def _compiled(formula: str) -> tuple[CodeType, frozenset[str]]:
    tree = expression_tree(formula)
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"{type(node).__name__} does not belong in an integer formula: {formula}")
        if isinstance(node, ast.Constant) and type(node.value) is not int:
            raise ValueError(f"not an integer: {node.value!r}")
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
        ):
            raise ValueError(f"no such function in: {formula}")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return compile(tree, "<formula>", "eval"), frozenset(names - _FUNCTIONS.keys())
