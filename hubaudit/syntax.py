"""The syntax tree of a formula's text, one at a time: the interpreter cannot make two trees in two threads."""

from __future__ import annotations

import ast
from threading import RLock

# CPython 3.11 and 3.12 count the depth of a tree under construction once for all threads, and raise `SystemError` ("AST constructor recursion
# depth mismatch") where another thread makes a tree meanwhile; a garbage collection in between is enough to let it in.
# https://github.com/python/cpython/issues/106905
_ONE_AT_A_TIME = RLock()


def expression_tree(text: str) -> ast.Expression:
    """The tree of the one expression ``text``; ``SyntaxError`` where it is none. Safe in threads."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval")
