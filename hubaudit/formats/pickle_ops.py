"""Pickle opcodes interpreted without ever unpickling: what a pickle would build, as a tree, nothing imported and nothing called.

The opcodes: CPython, Lib/pickletools.py (all of protocols 0 to 5). A call becomes a ``Built`` node and a name a ``Global`` node, so a
hostile pickle is only a strange tree.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hubaudit.formats.pickle_machine import (
    MAX_STACK,
    OPAQUE,
    BrokenPickleError,
    Built,
    Global,
    Machine,
    PersistentId,
    PickledDict,
)

MAX_OPCODES = 2_000_000  # a checkpoint of 10,000 tensors and their optimizer's 20,000 has about 1.1 million
MAX_TEXT_BYTES = 4_096  # longer strings and bytes are no names: they are passed over
MAX_INT_BYTES = 16
HIGHEST_PROTOCOL = 5
_STOP: Final = ord(".")
_BATCH: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pickle:
    """One stream, interpreted: its value, every global it names in order, its protocol, and where in the bytes it stops."""

    value: object
    names: tuple[str, ...]
    protocol: int
    end: int


def read_pickle(data: bytes) -> Pickle:
    """Interpret the pickle that starts at ``data``'s first byte.

    The value is made of None, bool, int, float, str, tuple, list (sets too), ``PickledDict``, ``Built``, ``Global``, ``PersistentId`` and
    ``OPAQUE``. It may hold one object in many places, and itself.

    Raises:
        BrokenPickleError: the stream is cut off, breaks the rules, or is larger than the bounds above.
    """
    machine = Machine(data)
    try:
        value = _run(machine)
    except BrokenPickleError as error:
        raise BrokenPickleError(error.reason, machine.at, tuple(machine.names)) from None
    return Pickle(value=value, names=tuple(machine.names), protocol=machine.protocol, end=machine.at)


def _run(machine: Machine) -> object:
    for _ in range(MAX_OPCODES // _BATCH):
        if _stopped(machine):
            return machine.pop()
        if max(len(machine.stack), len(machine.marks)) > MAX_STACK:
            raise BrokenPickleError(f"the pickle's stack grows past {MAX_STACK} values")
    raise BrokenPickleError(f"the pickle has more than {MAX_OPCODES} opcodes")


def _stopped(machine: Machine) -> bool:
    """Carry out at most ``_BATCH`` opcodes; whether STOP was among them. An opcode adds at most one value to the stack."""
    data, operations = machine.data, _OPERATIONS
    for _ in range(_BATCH):
        if machine.at >= len(data):
            raise BrokenPickleError("the pickle ends without STOP")
        opcode = data[machine.at]
        operation = operations.get(opcode)
        if operation is None:
            if opcode != _STOP:
                raise BrokenPickleError(f"unknown pickle opcode 0x{opcode:02x}")
            machine.at += 1
            return True
        machine.at += 1
        operation(machine)
    return False


_U1, _U2, _U4, _U8 = (struct.Struct(code) for code in ("<B", "<H", "<I", "<Q"))
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")

_Operation = Callable[[Machine], None]


def _push(make: Callable[[Machine], object]) -> _Operation:
    return lambda machine: machine.stack.append(make(machine))


def _sized(layout: struct.Struct, decode: Callable[[bytes], object], limit: int = MAX_TEXT_BYTES) -> _Operation:
    """An argument with its length before it; where it is longer than ``limit`` it is passed over."""

    def operation(machine: Machine) -> None:
        length = machine.count(layout)
        raw = machine.take(length)
        machine.stack.append(decode(raw) if length <= limit else OPAQUE)

    return operation


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _long(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _decimal(machine: Machine) -> object:
    raw = machine.line().removesuffix(b"L")
    if raw in {b"00", b"01"}:
        return raw == b"01"  # how protocols 0 and 1 write a bool
    if len(raw) > 2 * MAX_INT_BYTES:
        return OPAQUE
    try:
        return int(raw)
    except ValueError:
        raise BrokenPickleError("the pickle has a number that is none") from None


def _float_line(machine: Machine) -> object:
    try:
        return float(machine.line())
    except ValueError:
        raise BrokenPickleError("the pickle has a number that is none") from None


def _index_line(machine: Machine) -> int:
    value = _decimal(machine)
    if not isinstance(value, int):
        raise BrokenPickleError("the pickle has a memo index that is no number")
    return int(value)


def _protocol(machine: Machine) -> None:
    machine.protocol = machine.count(_U1)
    if machine.protocol > HIGHEST_PROTOCOL:
        raise BrokenPickleError(f"pickle protocol {machine.protocol}; this tool reads up to {HIGHEST_PROTOCOL}")


def _frame(machine: Machine) -> None:
    length = machine.count(_U8)
    if length > len(machine.data) - machine.at:
        raise BrokenPickleError("a frame of the pickle goes on past its end")


def _mark(machine: Machine) -> None:
    machine.marks.append(len(machine.stack))
    machine.fence = len(machine.stack)


def _discard(machine: Machine) -> None:
    if len(machine.stack) > machine.fence:
        machine.stack.pop()
    else:
        machine.pop_mark()


def _discard_mark(machine: Machine) -> None:
    machine.pop_mark()


def _tuple_of(length: int) -> Callable[[Machine], object]:
    return lambda machine: tuple(reversed([machine.pop() for _ in range(length)]))


def _dict_of_mark(machine: Machine) -> object:
    values, made = machine.pop_mark(), PickledDict()
    machine.put_items(made, values)
    return made


def _append(machine: Machine) -> None:
    value = machine.pop()
    machine.put_elements(machine.top(), [value])


def _append_mark(machine: Machine) -> None:
    values = machine.pop_mark()
    machine.put_elements(machine.top(), values)


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.put_items(machine.top(), [key, value])


def _set_mark(machine: Machine) -> None:
    values = machine.pop_mark()
    machine.put_items(machine.top(), values)


def _stack_global(machine: Machine) -> object:
    name, module = machine.pop(), machine.pop()
    return machine.name(module, name)


def _line_global(machine: Machine) -> Global:
    module = _text(machine.line())
    return machine.name(module, _text(machine.line()))


def _call(machine: Machine) -> object:
    arguments, function = machine.pop(), machine.pop()
    return Built(function, arguments)


def _call_with_keywords(machine: Machine) -> object:
    keywords, arguments, function = machine.pop(), machine.pop(), machine.pop()
    return Built(function, (arguments, keywords))


def _call_mark(machine: Machine) -> object:
    values = machine.pop_mark()
    if not values:
        raise BrokenPickleError("the pickle builds an object of no class")
    return Built(values[0], tuple(values[1:]))


def _call_line(machine: Machine) -> object:
    function = _line_global(machine)
    return Built(function, tuple(machine.pop_mark()))


def _build(machine: Machine) -> None:
    state, target = machine.pop(), machine.top()
    if isinstance(target, Built):
        target.states = target.states or []
        target.states.append(state)
    elif isinstance(target, Global):
        machine.name(target.name, "__setstate__")  # it would change the class itself, for everyone


def _extension(layout: struct.Struct) -> Callable[[Machine], object]:
    """A global by its number in a registry of the loading process, which nobody else can know."""
    return lambda machine: machine.name("copyreg", f"extension_{machine.count(layout)}")


_OPERATIONS: dict[int, _Operation] = {
    ord(code): operation
    for code, operation in {
        "\x80": _protocol,
        "\x95": _frame,
        # numbers and constants
        "N": _push(lambda _: None),
        "\x88": _push(lambda _: True),
        "\x89": _push(lambda _: False),
        "I": _push(_decimal),
        "L": _push(_decimal),
        "J": _push(lambda machine: machine.count(_I4)),
        "K": _push(lambda machine: machine.byte()),
        "M": _push(lambda machine: machine.count(_U2)),
        "\x8a": _sized(_U1, _long, MAX_INT_BYTES),
        "\x8b": _sized(_I4, _long, MAX_INT_BYTES),
        "F": _push(_float_line),
        "G": _push(lambda machine: machine.count(_F8)),
        # text and bytes; what Python 2 wrote as `str` is text here
        "S": _push(lambda machine: _text(machine.line().strip(b"'\""))),
        "T": _sized(_I4, _text),
        "U": _sized(_U1, _text),
        "V": _push(lambda machine: machine.line().decode("raw-unicode-escape", errors="replace")),
        "X": _sized(_U4, _text),
        "\x8c": _sized(_U1, _text),
        "\x8d": _sized(_U8, _text),
        "B": _sized(_U4, lambda _: OPAQUE),
        "C": _sized(_U1, lambda _: OPAQUE),
        "\x8e": _sized(_U8, lambda _: OPAQUE),
        "\x96": _sized(_U8, lambda _: OPAQUE),
        "\x97": _push(lambda _: OPAQUE),
        "\x98": lambda machine: None,
        # containers
        ")": _push(lambda _: ()),
        "\x85": _push(_tuple_of(1)),
        "\x86": _push(_tuple_of(2)),
        "\x87": _push(_tuple_of(3)),
        "t": _push(lambda machine: tuple(machine.pop_mark())),
        "]": _push(lambda _: []),
        "l": _push(lambda machine: machine.pop_mark()),
        "\x8f": _push(lambda _: []),
        "\x91": _push(lambda machine: machine.pop_mark()),
        "}": _push(lambda _: PickledDict()),
        "d": _push(_dict_of_mark),
        "a": _append,
        "e": _append_mark,
        "\x90": _append_mark,
        "s": _set_item,
        "u": _set_mark,
        # the stack and the memo
        "(": _mark,
        "0": _discard,
        "1": _discard_mark,
        "2": _push(lambda machine: machine.top()),
        "p": lambda machine: machine.remember(_index_line(machine)),
        "q": lambda machine: machine.remember(machine.byte()),
        "r": lambda machine: machine.remember(machine.count(_U4)),
        "\x94": lambda machine: machine.remember(len(machine.memo)),
        "g": lambda machine: machine.recall(_index_line(machine)),
        "h": lambda machine: machine.recall(machine.byte()),
        "j": lambda machine: machine.recall(machine.count(_U4)),
        # names and calls
        "c": _push(_line_global),
        "\x93": _push(_stack_global),
        "\x82": _push(_extension(_U1)),
        "\x83": _push(_extension(_U2)),
        "\x84": _push(_extension(_I4)),
        "R": _push(_call),
        "\x81": _push(_call),
        "\x92": _push(_call_with_keywords),
        "o": _push(_call_mark),
        "i": _push(_call_line),
        "b": _build,
        "P": _push(lambda machine: PersistentId(_text(machine.line()[:MAX_TEXT_BYTES]))),
        "Q": _push(lambda machine: PersistentId(machine.pop())),
    }.items()
}
