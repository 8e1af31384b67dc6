"""The formulas of the layer-plan tables: evaluated over one configuration, remembering where each value was read."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from hubaudit.syntax import expression_tree
from hubaudit.types import NOTHING, Json

if TYPE_CHECKING:
    from hubaudit.facts.config_reader import ConfigReader

Dimensions = Mapping[str, str]
"""Names that a row of the table gives to formulas."""
_LARGEST = 2**63  # no file has so many of anything


class NotKnownError(Exception):
    """A formula needs a value that the configuration does not give; the message says which, and why it is not known."""


class Scope:
    """What a formula may name: the layer's index, the row's dimensions, the keys of the configuration.

    A dimension wins over a key of the same name, except inside its own formula. ``overrides`` are keys whose value for this layer
    differs from the configuration's (``per_layer_config``); ``given`` are values that the caller computed. A name is null where the file
    says null, or where neither the file nor the class has it (``getattr(config, name, None)`` in modeling code); it is *not known*, and
    the formula fails, where the class computes it in a way that the table of defaults cannot express.
    """

    def __init__(
        self,
        config: ConfigReader,
        dimensions: Dimensions,
        *,
        given: Mapping[str, Json] = NOTHING,
        overrides: Mapping[str, Json] = NOTHING,
    ) -> None:
        self._config = config
        self._dimensions = dimensions
        self._given = given
        self._overrides = overrides
        self._open: list[str] = []
        self.wheres: dict[str, None] = {}
        self.depends_on_layer = False

    def evaluate(self, formula: str) -> Any:
        """The value of ``formula``; ``NotKnownError`` where one of the values that it really needs is not known."""
        return self._node(parsed(formula))

    def count(self, formula: str) -> int:
        """The value of ``formula`` as a count; ``NotKnownError`` where it is none."""
        value = self.evaluate(formula)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise NotKnownError(f"{formula} is {value!r:.40}, not a count")
        if value >= _LARGEST:
            raise NotKnownError(f"{formula} is larger than a count can be")
        return value

    def name(self, name: str) -> Any:
        """The value of one name."""
        if name in self._given:
            self.depends_on_layer = self.depends_on_layer or name == "layer"
            return self._given[name]
        if name in self._dimensions and name not in self._open:
            self._open.append(name)
            try:
                return self.evaluate(self._dimensions[name])
            finally:
                self._open.pop()
        if name in self._overrides:
            self.wheres[f"config.json#per_layer_config: {name}"] = None
            return self._overrides[name]
        return self._key(name)

    def _key(self, name: str) -> Any:
        answer = self._config.get(name)
        if answer.value is not None:
            self.wheres[answer.where] = None
            return answer.value
        if answer.where.endswith(" is null") or is_left_out(answer.where):
            return None
        raise NotKnownError(answer.where)

    def _node(self, node: ast.AST) -> Any:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise ValueError(f"{type(node).__name__} does not belong in a formula")
        return handler(self, node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self.name(node.id)

    def _sequence(self, node: ast.Tuple | ast.List) -> Any:
        return [self._node(item) for item in node.elts]

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self._node(node.operand)
        return (not value) if isinstance(node.op, ast.Not) else -self._number(value, node)

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self._node(node.left), self._node(node.right)
        if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
            return left + right
        left, right = self._number(left, node), self._number(right, node)
        if right == 0 and isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div):
            raise NotKnownError(f"{ast.unparse(node)} divides by zero")
        return _OPERATORS[type(node.op)](left, right)

    def _boolean(self, node: ast.BoolOp) -> Any:
        value: Any = None
        for part in node.values:
            value = self._node(part)
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def _conditional(self, node: ast.IfExp) -> Any:
        return self._node(node.body if self._node(node.test) else node.orelse)

    def _compare(self, node: ast.Compare) -> bool:
        left = self._node(node.left)
        for kind, part in zip(node.ops, node.comparators, strict=True):
            right = self._node(part)
            if not self._holds(kind, left, right, node):
                return False
            left = right
        return True

    def _holds(self, kind: ast.cmpop, left: Any, right: Any, node: ast.AST) -> bool:
        if isinstance(kind, ast.In | ast.NotIn):
            return (left in (right or ())) is isinstance(kind, ast.In)
        if isinstance(kind, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            return (left == right) is isinstance(kind, ast.Eq | ast.Is)
        return bool(_OPERATORS[type(kind)](self._number(left, node), self._number(right, node)))

    def _subscript(self, node: ast.Subscript) -> Any:
        held, key = self._node(node.value), self._node(node.slice)
        if isinstance(held, Mapping):
            return held.get(key)
        if isinstance(held, list | str) and isinstance(key, int) and -len(held) <= key < len(held):
            return held[key]
        raise NotKnownError(f"{ast.unparse(node.value)} has no item {key!r:.40}")

    def _call(self, node: ast.Call) -> Any:
        function = _FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        values = [self._node(part) for part in node.args]
        if isinstance(node.func, ast.Name) and node.func.id in ("said", "known") and len(values) == 1:
            return self._said(values[0]) if node.func.id == "said" else self._known(values[0])
        if function is None or node.keywords:
            raise ValueError(f"no such function: {ast.unparse(node.func)}")
        try:
            return function(*values)
        except (TypeError, ValueError, OverflowError) as error:
            raise NotKnownError(f"{ast.unparse(node)}: {error}") from None

    def _said(self, name: str) -> Any:
        """What the file itself says of ``name``; null where it says nothing."""
        return self._key(name) if self._config.says(name) else None

    def _known(self, name: str) -> Any:
        """The value of ``name``; null where it is not known."""
        try:
            return self._key(name)
        except NotKnownError:
            return None

    def _attribute(self, node: ast.Attribute) -> Any:
        """``section.name``: a key inside a section of the configuration."""
        section = ast.unparse(node.value)
        inner = self._config.section(section)
        if inner is None:
            raise NotKnownError(f"config.json has no section {section}")
        scope = Scope(inner, {})
        value = scope.name(node.attr)
        self.wheres.update(scope.wheres)
        return value

    def _number(self, value: Any, node: ast.AST) -> int | float:
        if isinstance(value, int | float) and abs(value) < _LARGEST:  # NaN is not
            return value
        shown = "null" if value is None else f"{value!r:.40}"
        raise NotKnownError(f"{ast.unparse(node)} needs a number, and has {shown}")


def is_left_out(where: str) -> bool:
    """Whether ``where`` says that nobody has the key: not the file, and not the class (or there is no class to ask)."""
    return where.endswith((" have it", " is not in the table", "names no model type"))


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def _ends(text: str, end: str) -> bool:
    return text.endswith(end)


def _item(mapping: Any, key: str) -> Any:
    """The value of ``key``; null where there is no mapping, or it has none."""
    return mapping.get(key) if isinstance(mapping, Mapping) else None


def _first(items: list[Any], wanted: list[Any]) -> int | None:
    """Index of the first of ``items`` that is one of ``wanted``."""
    return next((index for index, item in enumerate(items) if item in wanted), None)


def _last(items: list[Any], item: Any, before: int) -> int | None:
    """Index of the last ``item`` of the first ``before`` items."""
    return max((index for index, other in enumerate(items[:before]) if other == item), default=None)


_OPERATORS: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "min": min,
    "max": max,
    "int": int,
    "len": len,
    "round": round,
    "ceil_div": _ceil_div,
    "ceil": math.ceil,
    "ends": _ends,
    "first": _first,
    "item": _item,
    "last": _last,
}
_HANDLERS: Final[Mapping[type[ast.AST], Callable[[Scope, Any], Any]]] = {
    ast.Constant: Scope._constant,
    ast.Name: Scope._name,
    ast.Tuple: Scope._sequence,
    ast.List: Scope._sequence,
    ast.UnaryOp: Scope._unary,
    ast.BinOp: Scope._binary,
    ast.BoolOp: Scope._boolean,
    ast.IfExp: Scope._conditional,
    ast.Compare: Scope._compare,
    ast.Subscript: Scope._subscript,
    ast.Attribute: Scope._attribute,
    ast.Call: Scope._call,
}


@cache
def parsed(formula: str) -> ast.AST:
    """The formula's syntax tree; ``SyntaxError`` where it is no expression. It may run over several lines."""
    return expression_tree(" ".join(formula.split())).body
