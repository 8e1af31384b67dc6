"""Lines of the skeleton tables → the parameters of a model: which modules it has, under which names, of which shapes.

A layout is a list of lines, read in order::

    let head_dim = hidden_size // num_attention_heads
    embed_tokens: embedding(vocab_size, hidden_size)
    layers.{i < num_hidden_layers}: llama_layer(bias=False)
    lm_head: linear(hidden_size, vocab_size) when not tie_word_embeddings

``require condition`` stops where a value is not one that the layout describes. ``name: what(...) when condition`` puts a module under a name: one of ``LEAVES`` (with its parameters), another block of the tables, or
``section(vision_config)``, the model that a nested configuration describes. An empty name puts a block's lines in place. ``{i < n}`` in a
name repeats the line for every i, ``[i < n]`` before a name does without showing it, ``{= i + 1}`` is a computed number, and ``$base``
what ``base`` is bound to. A block sees what its caller bound, then its own ``options``, then the configuration.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from hubaudit.facts.skeleton_expressions import compiled, compiled_node
from hubaudit.facts.skeleton_scope import Scope, Unknown
from hubaudit.syntax import expression_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hubaudit.facts.config_reader import ConfigReader
    from hubaudit.facts.skeleton_scope import Expression, Reading, Value

#: Bounds beyond any model that transformers has (the largest that the tables describe has some thousands of tensors), so that a broken
#: configuration is told in a moment.
MOST_PARTS: Final = 25_000
MOST_STEPS: Final = 100_000
MOST_LAYERS: Final = 1_024
_DEEPEST: Final = 40
_BOUND = re.compile(r"\$(\w+)")
_COMPUTED = re.compile(r"\{= ([^}]*)\}")
_LOOP = re.compile(r"\[(\w+) < ([^\]]*)\]")
_REPEAT = re.compile(r"\{(\w+) < ([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Part:
    """One parameter or stored buffer: ``kind`` is that of its module (``TensorGroup.kind``)."""

    name: str
    shape: tuple[int, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Let:
    """``let name = expression``."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Require:
    """``require condition``: where it does not hold, the configuration asks for what the tables do not describe."""

    condition: Expression
    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """``name: what(arguments) when condition``; ``first_word`` is the first argument where it is a bare word."""

    name: str
    what: str
    arguments: tuple[Expression, ...]
    named: tuple[tuple[str, Expression], ...]
    first_word: str | None
    condition: Expression | None
    text: str


Line: TypeAlias = Let | Require | Item


# --- lines ---------------------------------------------------------------------------------------------------------------------


@cache
def lines_of(text: str) -> tuple[Line, ...]:
    """The lines of a layout. ``ValueError`` where one is not understood: a mistake in a table, not in a file."""
    stripped = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(_line(line) for line in stripped if line)


def _line(line: str) -> Line:
    if line.startswith("let "):
        name, _, expression = line.removeprefix("let ").partition("=")
        return Let(name.strip(), compiled(expression))
    if line.startswith("require "):
        return Require(compiled(line.removeprefix("require ")), line)
    name, colon, rest = line.partition(": ")
    call_text, _, condition = rest.partition(" when ")
    try:
        call = expression_tree(call_text.strip()).body
    except SyntaxError as error:
        raise ValueError(f"not a line of a layout: {line!r}") from error
    if not colon or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"not a line of a layout: {line!r}")
    return Item(
        name=name.strip().removeprefix("."),
        what=call.func.id,
        arguments=tuple(compiled_node(argument, line) for argument in call.args),
        named=tuple((word.arg or "", compiled_node(word.value, line)) for word in call.keywords),
        first_word=next((argument.id for argument in call.args[:1] if isinstance(argument, ast.Name)), None),
        condition=compiled(condition) if condition else None,
        text=line,
    )


# --- leaves ---------------------------------------------------------------------------------------------------------------------


def _with_bias(
    kind: str, weight: tuple[Value, ...], out: Value, bias: Value
) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    yield "weight", weight, kind
    if bias:
        yield "bias", (out,), "bias"


def _linear(inputs: Value, outputs: Value, bias: Value = False) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    return _with_bias("linear", (outputs, inputs), outputs, bias)


def _conv1d(inputs: Value, outputs: Value) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    return _with_bias("conv1d", (inputs, outputs), outputs, bias=True)


def _norm(size: Value, bias: Value = False) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    yield "weight", (size,), "norm"
    if bias:
        yield "bias", (size,), "norm"


def _embedding(rows: Value, columns: Value) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    yield "weight", (rows, columns), "embedding"


def _conv(outputs: Value, *rest: Value, bias: Value = True) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    return _with_bias("conv", (outputs, *rest), outputs, bias)


def _conv_transposed(
    inputs: Value, outputs: Value, *kernel: Value, bias: Value = True
) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    return _with_bias("conv", (inputs, outputs, *kernel), outputs, bias)


def _batch_norm(size: Value) -> Iterator[tuple[str, tuple[Value, ...], str]]:
    yield from _norm(size, bias=True)
    yield "running_mean", (size,), "buffer"
    yield "running_var", (size,), "buffer"
    yield "num_batches_tracked", (), "buffer"


#: Modules that hold parameters, in torch's own conventions: ``linear(in, out, bias)``, ``conv1d(in, out)`` (GPT-2's transposed linear),
#: ``conv(out, in_per_group, *kernel, bias=True)``; and bare tensors (``experts``, ``vector``, ``tensor``, ``buffer``) under the line's own name.
LEAVES: Final[Mapping[str, Callable[..., Iterable[tuple[str, tuple[Value, ...], str]]]]] = {
    "linear": _linear,
    "conv1d": _conv1d,
    "norm": _norm,
    "embedding": _embedding,
    "conv": _conv,
    "conv_transposed": _conv_transposed,
    "batch_norm": _batch_norm,
    "experts": lambda *shape: [("", shape, "experts")],
    "vector": lambda *shape: [("", shape, "vector")],
    "norm_matrix": lambda *shape: [("", shape, "norm")],
    "bias": lambda size: [("", (size,), "bias")],
    "tensor": lambda *shape: [("", shape, "other")],
    "buffer": lambda *shape: [("", shape, "buffer")],
}


# --- expansion -------------------------------------------------------------------------------------------------------------------


class Blocks(Protocol):
    """Where an expansion finds what the lines name."""

    def block(self, name: str) -> tuple[tuple[Line, ...], Mapping[str, str]]:
        """The lines and the options (name → expression) of a block of the tables."""

    def model(self, reader: ConfigReader, task: str | None) -> tuple[tuple[Line, ...], Mapping[str, str], str]:
        """The lines, bindings and body of the model that ``reader`` describes; ``Unknown`` where no row does.

        ``task`` is ``None`` for a section: the class that transformers builds inside another model.
        """


class Expansion:
    """Collects the parts of one model while its lines are expanded."""

    def __init__(self, blocks: Blocks) -> None:
        self.parts: dict[str, Part] = {}
        self._blocks = blocks
        self._depth = 0
        self._steps = 0

    def model(self, reader: ConfigReader, reading: Reading, task: str | None, prefix: str = "") -> None:
        """Add the model that ``reader`` describes, as the class for ``task`` builds it."""
        lines, bindings, body = self._blocks.model(reader, task)
        scope = Scope(reader, reading)
        for name, expression in bindings.items():
            inner = scope.inner()
            inner.bind(name, compiled(expression), scope)
            scope = inner
        scope.set("body", body)
        self._lines(lines, scope, prefix)

    def _lines(self, lines: tuple[Line, ...], scope: Scope, prefix: str) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unknown("the configuration nests too deeply")
        for line in lines:
            if isinstance(line, Let):
                outer, scope = scope, scope.inner()
                scope.bind(line.name, line.expression, outer)
            elif isinstance(line, Require):
                if not line.condition(scope):
                    raise Unknown(f"not described: the tables {line.text}")
            else:
                self._item(line, line.name, scope, prefix)
        self._depth -= 1

    def _item(self, item: Item, name: str, scope: Scope, prefix: str) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Unknown(f"the configuration takes more than {MOST_STEPS} steps to expand")
        name = _BOUND.sub(lambda found: str(scope.value(found[1])), name)
        repeat = _LOOP.match(name) or _REPEAT.search(name)
        if repeat is None:
            if item.condition is None or item.condition(scope):
                self._place(item, _COMPUTED.sub(lambda found: str(compiled(found[1])(scope)), name), scope, prefix)
            return
        count = _size(compiled(repeat[2])(scope), MOST_LAYERS)
        shown = "{}" if name[repeat.start()] == "{" else ""
        stems = [name[: repeat.start()] + shown.format(index) for index in range(count)]
        for index, stem in enumerate(stems):
            inner = scope.inner()
            inner.count(repeat[1], index)
            before = len(self.parts)
            self._item(item, stem + name[repeat.end() :], inner, prefix)
            if index == 0 and not inner.counted:
                self._copy(list(self.parts.values())[before:], [prefix + stem for stem in stems])
                return

    def _copy(self, parts: list[Part], stems: list[str]) -> None:
        """Add the parts of the first round for all others: nothing in it asked for its number, so all are alike but for their names."""
        start = len(stems[0]) if stems else 0
        for stem in stems[1:]:
            for part in parts:
                self._add(stem + part.name[start:], part.shape, part.kind)

    def _place(self, item: Item, name: str, scope: Scope, prefix: str) -> None:
        full = f"{prefix}{name}"
        if item.what in LEAVES:
            self._leaf(item, full, scope)
            return
        inner = f"{full}." if name else prefix
        if item.what == "section":
            words = [str(argument(scope)) for argument in item.arguments[1:]]
            found = scope.section(item.first_word or "", *words[1:2])
            self.model(found, scope.reading, words[0] if words else None, inner)
            return
        called = str(scope.value("body")) if item.what == "body" else item.what
        if scope.binds(called):  # a row chooses the block by a binding: let attention = "gqa"
            called = str(scope.value(called))
        lines, options = self._blocks.block(called)
        bound = scope.inner()
        for word, argument in item.named:
            bound.bind(word, argument, scope)
        self._lines(lines, _with_defaults(bound, options), inner)

    def _leaf(self, item: Item, name: str, scope: Scope) -> None:
        arguments = [argument(scope) for argument in item.arguments]
        named = {word: expression(scope) for word, expression in item.named}
        for suffix, shape, kind in LEAVES[item.what](*arguments, **named):
            full = f"{name}.{suffix}" if suffix else name
            self._add(full, tuple(_size(size, 2**53) for size in shape), kind)

    def _add(self, name: str, shape: tuple[int, ...], kind: str) -> None:
        if name in self.parts:
            raise ValueError(f"the tables give {name} twice")
        if len(self.parts) >= MOST_PARTS:
            raise Unknown(f"the configuration asks for more than {MOST_PARTS} tensors")
        if 0 in shape:
            raise Unknown(f"{name[:100]!a} would have no elements")
        self.parts[name] = Part(name, shape, kind)


def _with_defaults(scope: Scope, options: Mapping[str, str]) -> Scope:
    """``scope`` with what holds where nobody outside bound an option; a later option may refer to an earlier one."""
    for option, expression in options.items():
        if not scope.binds(option):
            inner = scope.inner()
            inner.bind(option, compiled(expression), scope)
            scope = inner
    return scope


def _size(value: Value, most: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Unknown(f"{value!r:.40} is not a size")
    return value
