"""What the names in the skeleton tables stand for: bindings of the tables, innermost first, then the configuration's own values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hubaudit.facts.config_reader import ConfigReader

if TYPE_CHECKING:
    from collections.abc import Callable

Value: TypeAlias = Any
Expression: TypeAlias = "Callable[[Scope], Value]"

_LARGEST: Final = 2**53  # as in ConfigReader: beyond it a JSON number is no count


class Unknown(Exception):  # noqa: N818 -- an answer, not a fault: it carries the reason out of a nested evaluation
    """A value that the configuration does not give; ``str()`` is the reason."""


class Reading:
    """What one expansion has read: each configuration value once, and where it came from.

    ``where`` goes by the value's name, or ``<model type>.<name>`` for one of a nested configuration.
    """

    __slots__ = ("_root", "_sections", "_values", "where")

    def __init__(self, root: ConfigReader) -> None:
        self._root = root
        self.where: dict[str, str] = {}
        self._values: dict[tuple[int, str], Value] = {}
        self._sections: dict[tuple[int, str, str | None], ConfigReader] = {}

    def value(self, reader: ConfigReader, name: str) -> Value:
        """The configuration's value of ``name``; ``None`` only where it is known to be null, ``Unknown`` where nobody says."""
        key = (id(reader), name)
        if key not in self._values:
            self._values[key] = self._read(reader, name)
        return self._values[key]

    def _read(self, reader: ConfigReader, name: str) -> Value:
        answer = reader.get(name)
        if answer.value is None and not reader.is_null(name):
            raise Unknown(answer.where)
        self.where[name if reader is self._root else f"{reader.model_type}.{name}"] = answer.where
        if isinstance(answer.value, int) and abs(answer.value) > _LARGEST:
            raise Unknown(f"{answer.where} is larger than a count can be")
        return answer.value

    def section(self, reader: ConfigReader, name: str, model_type: str | None) -> ConfigReader:
        """The nested configuration ``name``, read as ``model_type`` where one is given; ``Unknown`` where there is none.

        ``text_config`` is wherever this model type keeps its language model.
        """
        key = (id(reader), name, model_type)
        if key not in self._sections:
            self._sections[key] = self._find(reader, name, model_type)
        return self._sections[key]

    def _find(self, reader: ConfigReader, name: str, model_type: str | None) -> ConfigReader:
        if model_type is not None:
            return ConfigReader(reader.get(name).value, path=name, model_type=model_type)
        found = reader.section(name)
        if found is None and name == "text_config":
            found = reader.language_model()
        if found is None or found is reader:
            raise Unknown(f"the configuration has no {name}")
        return found


class Scope:
    """Names that an expression may use: what a table bound, innermost first, then the configuration's own values.

    A binding is evaluated when it is first asked for, in the scope that bound it, so that ``head_dim`` may be bound to an expression
    over the configuration's own ``head_dim``.
    """

    __slots__ = ("_bound", "_counter", "_parent", "_values", "counted", "reader", "reading")

    def __init__(self, reader: ConfigReader, reading: Reading, parent: Scope | None = None) -> None:
        self.reader = reader
        self.reading = reading
        self._parent = parent
        self._bound: dict[str, tuple[Expression, Scope]] = {}
        self._values: dict[str, Value] = {}
        self._counter: str | None = None
        self.counted = False
        """Whether anything asked for the number of the round that :meth:`count` set."""

    def inner(self) -> Scope:
        """A scope inside this one."""
        return Scope(self.reader, self.reading, self)

    def bind(self, name: str, expression: Expression, within: Scope) -> None:
        """Let ``name`` stand for ``expression`` evaluated in ``within``."""
        self._bound[name] = (expression, within)

    def set(self, name: str, value: Value) -> None:
        """Let ``name`` stand for ``value``."""
        self._values[name] = value

    def count(self, name: str, index: int) -> None:
        """Let ``name`` stand for the number of a repeated line's round."""
        self._values[name] = index
        self._counter = name

    def binds(self, name: str) -> bool:
        """Whether a table bound ``name`` here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._values or name in scope._bound:
                return True
            scope = scope._parent
        return False

    def value(self, name: str) -> Value:
        """What ``name`` stands for; ``Unknown`` where nobody says."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._values:
                scope.counted |= name == scope._counter
                return scope._values[name]
            if name in scope._bound:
                expression, within = scope._bound[name]
                scope._values[name] = expression(within)
                return scope._values[name]
            scope = scope._parent
        return self.reading.value(self.reader, name)

    def section(self, name: str, model_type: str | None = None) -> ConfigReader:
        """The nested configuration ``name``; see ``Reading.section``."""
        return self.reading.section(self.reader, name, model_type)
