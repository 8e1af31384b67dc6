"""The abstract machine under a pickle: the nodes of the tree it makes, and the bounded stack, marks and memo it makes them on.

Dictionaries stay lists of pairs and nothing is hashed or compared, because nested tuples can be made that take for ever to hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import struct

MAX_STACK = 1_000_000
MAX_MEMO = 1_000_000
MAX_LINE_BYTES = 65_536
MAX_GLOBALS = 10_000
MAX_GLOBAL_NAME = 200

# Python 2's names of modules, which torch.save's default protocol 2 still writes (CPython, Lib/_compat_pickle.py).
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class BrokenPickleError(ValueError):
    """The stream breaks pickle's rules or this reader's bounds; ``offset`` is the byte in the stream, where one can be named.

    ``names`` are the globals named before that: a pickle may do its harm first and break afterwards.
    """

    def __init__(self, reason: str, offset: int | None = None, names: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.names = names


# Empty until something is put in: a hostile pickle has millions of empty containers, and each list would cost it nothing and us memory.
Values: TypeAlias = list[object] | tuple[()]
Pairs: TypeAlias = list[tuple[object, object]] | tuple[()]


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A name that loading the pickle would import: ``module.name``."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class PersistentId:
    """A reference to what lies outside the pickle; torch's storages are such."""

    value: object


@dataclass(slots=True, eq=False)
class PickledDict:
    """A dictionary as the pairs that were put into it, in order; a later pair of the same key wins."""

    items: Pairs = ()


@dataclass(slots=True, eq=False)
class Built:
    """What a call would return: ``function(*arguments)``, then the states, pairs and elements given to the result."""

    function: object
    arguments: object
    states: Values = ()
    items: Pairs = ()
    elements: Values = ()


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A value that is of no use here: long bytes, huge integers, buffers."""


OPAQUE: Final = Opaque()


class Machine:
    """A stream of opcodes and what lies on the stack: every method raises ``BrokenPickleError`` where the stream breaks a rule or a bound."""

    __slots__ = ("at", "data", "fence", "marks", "memo", "names", "protocol", "stack")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.fence = 0  # what lies below the last mark is out of reach
        self.memo: dict[int, object] = {}
        self.names: dict[str, Global] = {}
        self.protocol = 0

    def pop(self) -> object:
        """Take the top value; what lies below the last mark cannot be taken."""
        if len(self.stack) <= self.fence:
            raise BrokenPickleError("the pickle takes more from the stack than lies on it")
        return self.stack.pop()

    def top(self) -> object:
        """The top value, left where it is."""
        if len(self.stack) <= self.fence:
            raise BrokenPickleError("the pickle takes more from the stack than lies on it")
        return self.stack[-1]

    def pop_mark(self) -> list[object]:
        """Take all values above the last mark, and the mark."""
        if not self.marks:
            raise BrokenPickleError("the pickle goes back to a mark that was not set")
        start = self.marks.pop()
        self.fence = self.marks[-1] if self.marks else 0
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes of the stream."""
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise BrokenPickleError(f"the pickle is cut off: {length} bytes wanted, {len(self.data) - self.at} left")
        start, self.at = self.at, end
        return self.data[start:end]

    def byte(self) -> int:
        """The next byte of the stream."""
        if self.at >= len(self.data):
            raise BrokenPickleError("the pickle is cut off: 1 byte wanted, 0 left")
        self.at += 1
        return self.data[self.at - 1]

    def count(self, layout: struct.Struct) -> int:
        """One number of the stream; floats come this way too, and no one looks at them."""
        start, end = self.at, self.at + layout.size
        if end > len(self.data):
            raise BrokenPickleError(f"the pickle is cut off: {layout.size} bytes wanted, {len(self.data) - start} left")
        self.at = end
        value: int = layout.unpack_from(self.data, start)[0]
        return value

    def line(self) -> bytes:
        """The rest of the line, without its end."""
        end = self.data.find(b"\n", self.at, self.at + MAX_LINE_BYTES)
        if end < 0:
            raise BrokenPickleError(f"a line of the pickle does not end within {MAX_LINE_BYTES} bytes")
        return self.take(end + 1 - self.at)[:-1]

    def remember(self, index: int) -> None:
        """Put the top value into the memo."""
        if index < 0 or len(self.memo) >= MAX_MEMO:
            raise BrokenPickleError(f"the pickle's memo has a negative index or more than {MAX_MEMO} entries")
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        """Push a value of the memo."""
        if index not in self.memo:
            raise BrokenPickleError(f"the pickle asks for the memo's entry {index}, which is not there")
        self.stack.append(self.memo[index])

    def name(self, module: object, name: object) -> Global:
        """The node of a global. A name that is itself computed is kept as such: hiding it does not make it disappear."""
        parts = [part if isinstance(part, str) else "<computed>" for part in (module, name)]
        parts[0] = _OLD_MODULES.get(parts[0], parts[0])
        full = "".join(
            character if character.isprintable() else "\ufffd" for character in ".".join(parts)[:MAX_GLOBAL_NAME]
        )
        if full not in self.names:
            if len(self.names) >= MAX_GLOBALS:
                raise BrokenPickleError(f"the pickle names more than {MAX_GLOBALS} globals")
            self.names[full] = Global(full)
        return self.names[full]

    def put_items(self, target: object, values: list[object]) -> None:
        """Set ``values``, keys and values in turn, in a dictionary or in what a call returned."""
        if len(values) % 2:
            raise BrokenPickleError("the pickle sets a key without a value")
        if not isinstance(target, PickledDict | Built):
            raise BrokenPickleError("the pickle sets items of what has none")
        target.items = target.items or []
        target.items.extend(zip(values[::2], values[1::2], strict=True))

    def put_elements(self, target: object, values: list[object]) -> None:
        """Append ``values`` to a list or to what a call returned."""
        if isinstance(target, Built):
            target.elements = target.elements or []
            target.elements.extend(values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise BrokenPickleError("the pickle appends to what is no list")
