"""Syntax trees of formulas, in one thread and in many."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from hubaudit.syntax import expression_tree

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def threads_switch_while_a_tree_is_made() -> Iterator[None]:
    """The garbage collector runs all the time, and each time lets another thread have its turn, as its callbacks in a Dask worker do."""

    def let_others_run(*_: object) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(10)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_others_run)


def nested(depth: int) -> str:
    """Parentheses in parentheses, so that trees of two depths are under way at once."""
    return "(1 + " * depth + "x" + ")" * depth


@pytest.mark.usefixtures("threads_switch_while_a_tree_is_made")
def test_many_threads_make_trees() -> None:
    """Each thread has its own tree, whatever the depth of the others'; without a lock CPython 3.11 ends in a `SystemError` here."""
    depths = [1 + number % 60 for number in range(120)]
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda depth: ast.unparse(expression_tree(nested(depth))), depths))
    assert trees == [ast.unparse(ast.parse(nested(depth), mode="eval")) for depth in depths]


def test_what_is_no_expression() -> None:
    """A statement is refused."""
    with pytest.raises(SyntaxError):
        expression_tree("x = 1")
