"""The small expressions of the skeleton tables: arithmetic and conditions over the values of one configuration.

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
from typing import Any, Final, TypeAlias

from hubaudit.facts.config_reader import ConfigReader

Value: TypeAlias = Any
Expression: TypeAlias = "Callable[[Scope], Value]"

_LARGEST: Final = 2**53
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


class Unknown(Exception):  # noqa: N818 -- an answer, not a fault: it carries the reason out of a nested evaluation
    """A value that the configuration does not give; ``str()`` is the reason."""


class Scope:
    """Names that an expression may use: what a table bound, innermost first, then the configuration's own values.

    ``read`` collects where each value of the configuration came from. A binding is evaluated when it is first asked for, in the scope
    that bound it, so that ``head_dim`` may be bound to an expression over the configuration's own ``head_dim``.
    """

    __slots__ = ("_bound", "_parent", "_values", "read", "reader")

    def __init__(self, reader: ConfigReader, read: dict[str, str], parent: Scope | None = None) -> None:
        self.reader = reader
        self.read = read
        self._parent = parent
        self._bound: dict[str, tuple[Expression, Scope]] = {}
        self._values: dict[str, Value] = {}

    def inner(self) -> Scope:
        """A scope inside this one."""
        return Scope(self.reader, self.read, self)

    def bind(self, name: str, expression: Expression, within: Scope) -> None:
        """Let ``name`` stand for ``expression`` evaluated in ``within``."""
        self._bound[name] = (expression, within)

    def set(self, name: str, value: Value) -> None:
        """Let ``name`` stand for ``value``."""
        self._values[name] = value

    def binds(self, name: str) -> bool:
        """Whether a table bound ``name`` here or further out."""
        return name in self._values or name in self._bound or (self._parent is not None and self._parent.binds(name))

    def value(self, name: str) -> Value:
        """What ``name`` stands for; ``Unknown`` where nobody says."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            if name in scope._bound:
                expression, within = scope._bound[name]
                scope._values[name] = expression(within)
                return scope._values[name]
            scope = scope._parent
        return self.configured(self.reader, name)

    def configured(self, reader: ConfigReader, name: str) -> Value:
        """The configuration's value of ``name``; ``None`` only where it is known to be null."""
        answer = reader.get(name)
        if answer.value is None and not reader.is_null(name):
            raise Unknown(answer.where)
        self.read[name] = answer.where
        if isinstance(answer.value, int) and abs(answer.value) > _LARGEST:
            raise Unknown(f"{answer.where} is larger than a count can be")
        return answer.value

    def section(self, name: str, model_type: str | None = None) -> ConfigReader:
        """The nested configuration ``name``, read as ``model_type`` where one is given; ``text_config`` is wherever this model type keeps its language model."""
        if model_type is not None:
            return ConfigReader(self.reader.get(name).value, path=name, model_type=model_type)
        found = self.reader.section(name)
        if found is None and name == "text_config":
            found = self.reader.language_model()
            found = None if found is self.reader else found
        if found is None:
            raise Unknown(f"the configuration has no {name}")
        return found


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
        scope.read["id2label"] = scope.reader.get("id2label").where
        return len(named)
    counted = scope.reader.integer("num_labels")
    scope.read["num_labels"] = counted.where if counted.value is not None else "default:PreTrainedConfig"
    return otherwise if counted.value is None else counted.value


def _first(*values: Value) -> Value:
    return next((value for value in values if value is not None), None)


def _count(values: Value, wanted: Value) -> int:
    return sum(1 for value in values if value == wanted)


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
    "round": lambda value: round(_numbers([value])[0]),
    "min": lambda *values: min(_numbers(list(values))),
    "max": lambda *values: max(_numbers(list(values))),
    "sum": lambda values: sum(_numbers(list(values))),
    "len": len,
    "first": _first,
    "count": _count,
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
        node = ast.parse(text.strip(), mode="eval").body
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
    return lambda scope: scope.configured(scope.section(section), node.attr)


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
