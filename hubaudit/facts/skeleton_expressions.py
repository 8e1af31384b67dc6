"""The small expressions of the skeleton tables: arithmetic and conditions over names and the values of one configuration.

They are Python's syntax, parsed by Python and evaluated here: constants, names, ``section.name``, ``+ - * / // %``, comparisons, ``in``,
``and or not``, ``a if c else b``, ``list[i]`` and the functions below. Nothing else is understood, so a table cannot run code, and
arithmetic takes numbers only, so a value of a wrong type in a file is an answer (``Unknown``), never a crash or a huge string.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from math import prod
from typing import Any, Final

from hubaudit.facts.skeleton_scope import Expression, Scope, Unknown, Value
from hubaudit.syntax import expression_tree

_LARGEST_EXPONENT: Final = 64
_ARITHMETIC: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


# --- functions that an expression may call: their arguments come unevaluated --------------------------------------------------


def _numbers(values: list[Value]) -> list[Value]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{value!r:.40} is not a number")
    return values


def _given(scope: Scope, node: ast.expr) -> bool:
    """Whether the file itself gives the value, and not as null."""
    reader, _, name = ast.unparse(node).rpartition(".")
    found = scope.section(reader) if reader else scope.reader
    return found.says(name) and found.get(name).value is not None


def _labels(scope: Scope, otherwise: Value = 2) -> Value:
    """How many classes a classification head has: PreTrainedConfig counts ``id2label``, else takes ``num_labels``, else ``otherwise``."""
    named = scope.reader.get("id2label").value
    if isinstance(named, Mapping):
        scope.reading.where["id2label"] = scope.reader.get("id2label").where
        return len(named)
    counted = scope.reader.integer("num_labels")
    scope.reading.where["num_labels"] = counted.where if counted.value is not None else "default:PreTrainedConfig"
    return otherwise if counted.value is None else counted.value


def _first(*values: Value) -> Value:
    return next((value for value in values if value is not None), None)


def _ceil_div(left: Value, right: Value) -> Value:
    _numbers([left, right])
    return -(-left // right)


def _power(base: Value, exponent: Value) -> Value:
    _numbers([base, exponent])
    if not 0 <= exponent <= _LARGEST_EXPONENT:
        raise ValueError(f"{exponent!r:.40} is no exponent")
    return base**exponent


def _at(entries: Value, index: Value, key: Value, otherwise: Value) -> Value:
    """``entries[index][key]`` of a JSON object of objects, whose keys are strings; ``otherwise`` where there is none."""
    entry = entries.get(str(index)) if isinstance(entries, Mapping) else None
    return entry[key] if isinstance(entry, Mapping) and key in entry else otherwise


_FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "int": lambda value: int(_numbers([value])[0]),
    "max": lambda *values: max(_numbers(list(values))),
    "min": lambda *values: min(_numbers(list(values))),
    "sum": lambda values: sum(_numbers(values)),
    "len": len,
    "first": _first,
    "ceil_div": _ceil_div,
    "round_up": lambda value, multiple: _ceil_div(value, multiple) * multiple,
    "items": lambda value: len(value) if isinstance(value, list) else 1,
    "each": lambda value, index: value[index] if isinstance(value, list) else value,
    "at": _at,
    "prod": lambda values: prod(_numbers(list(values))),
    "power": _power,
    "bits": lambda value: (_numbers([int(value)])[0] - 1).bit_length(),
    "height": lambda size: size[0] if isinstance(size, list) else size,
    "width": lambda size: size[1] if isinstance(size, list) else size,
    "starts": lambda text, prefix: str(text).startswith(prefix),
}


# --- compiling ------------------------------------------------------------------------------------------------------------------


@cache
def compiled(text: str) -> Expression:
    """The expression ``text``, ready to evaluate. ``ValueError`` where it is not one: a mistake in a table, not in a file."""
    try:
        node = expression_tree(text.strip()).body
    except SyntaxError as error:
        raise ValueError(f"not an expression: {text!r}") from error
    return compiled_node(node, text)


def compiled_node(node: ast.expr, text: str) -> Expression:
    """The same for a parsed expression; what goes wrong while it is evaluated names ``text``."""
    inner = _compile(node)

    def evaluate(scope: Scope) -> Value:
        try:
            return inner(scope)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise Unknown(f"{text.strip()} cannot be computed: {error}") from error

    return evaluate


def _compile(node: ast.expr) -> Expression:
    compiler = _COMPILERS.get(type(node))
    if compiler is None:
        raise ValueError(f"not understood in a table: {ast.unparse(node)!r}")
    return compiler(node)


def _constant(node: ast.Constant) -> Expression:
    return lambda scope: node.value


def _name(node: ast.Name) -> Expression:
    return lambda scope: scope.value(node.id)


def _attribute(node: ast.Attribute) -> Expression:
    if not isinstance(node.value, ast.Name):
        raise ValueError(f"not understood in a table: {ast.unparse(node)!r}")
    section = node.value.id
    return lambda scope: scope.reading.value(scope.section(section), node.attr)


def _arithmetic(node: ast.BinOp) -> Expression:
    left, right, apply = _compile(node.left), _compile(node.right), _ARITHMETIC[type(node.op)]
    return lambda scope: apply(*_numbers([left(scope), right(scope)]))


def _unary(node: ast.UnaryOp) -> Expression:
    operand = _compile(node.operand)
    if isinstance(node.op, ast.Not):
        return lambda scope: not operand(scope)
    return lambda scope: -_numbers([operand(scope)])[0]


def _boolean(node: ast.BoolOp) -> Expression:
    operands = [_compile(value) for value in node.values]
    if isinstance(node.op, ast.And):
        return lambda scope: all(operand(scope) for operand in operands)
    return lambda scope: any(operand(scope) for operand in operands)


def _compare(node: ast.Compare) -> Expression:
    if len(node.ops) != 1:
        raise ValueError(f"compare two values at a time: {ast.unparse(node)!r}")
    left, right = _compile(node.left), _compile(node.comparators[0])
    if isinstance(node.ops[0], ast.Is | ast.IsNot):
        is_not = isinstance(node.ops[0], ast.IsNot)
        return lambda scope: (left(scope) is right(scope)) != is_not
    apply = _COMPARISONS[type(node.ops[0])]
    return lambda scope: apply(left(scope), right(scope))


def _choice(node: ast.IfExp) -> Expression:
    test, yes, no = _compile(node.test), _compile(node.body), _compile(node.orelse)
    return lambda scope: yes(scope) if test(scope) else no(scope)


def _subscript(node: ast.Subscript) -> Expression:
    whole, index = _compile(node.value), _compile(node.slice)
    return lambda scope: whole(scope)[index(scope)]


def _sequence(node: ast.Tuple | ast.List) -> Expression:
    items = [_compile(item) for item in node.elts]
    return lambda scope: [item(scope) for item in items]


def _call(node: ast.Call) -> Expression:
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise ValueError(f"not understood in a table: {ast.unparse(node)!r}")
    name = node.func.id
    if name == "labels":
        otherwise = [_compile(argument) for argument in node.args]
        return lambda scope: _labels(scope, *(value(scope) for value in otherwise))
    if name == "given":
        (argument,) = node.args
        return lambda scope: _given(scope, argument)
    if name not in _FUNCTIONS:
        raise ValueError(f"no such function in a table: {name!r}")
    function, arguments = _FUNCTIONS[name], [_compile(argument) for argument in node.args]
    return lambda scope: function(*(argument(scope) for argument in arguments))


_COMPILERS: Final[Mapping[type, Callable[[Any], Expression]]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.BinOp: _arithmetic,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _choice,
    ast.Subscript: _subscript,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Call: _call,
}
