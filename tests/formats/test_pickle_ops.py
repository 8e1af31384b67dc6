"""The abstract pickle machine against Python's own pickle, and against pickles made to hurt."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import sys
from collections import OrderedDict, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.formats import pickle_machine, pickle_ops
from hubaudit.formats.pickle_machine import OPAQUE, BrokenPickleError, Built, Global, PersistentId, PickledDict
from hubaudit.formats.pickle_ops import read_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def plain(value: Any) -> Any:
    """The tree as the Python value that it stands for."""
    if isinstance(value, PickledDict):
        return {plain(key): plain(child) for key, child in value.items}
    if isinstance(value, list | tuple):
        return type(value)(plain(child) for child in value)
    if isinstance(value, Built):
        assert isinstance(value.function, Global)
        if value.function.name == "_codecs.encode":
            return plain(value.arguments)[0].encode("latin-1")  # how protocols 0 to 2 write bytes
        if value.function.name == "builtins.bytes":
            return b""  # and how they write no bytes
        assert value.function.name == "collections.OrderedDict"
        return OrderedDict((plain(key), plain(child)) for key, child in value.items)
    return value


def test_every_opcode_of_pickle_is_known() -> None:
    """Each opcode that pickletools lists is carried out; STOP ends the stream."""
    assert {ord(known.code) for known in pickletools.opcodes} == {*pickle_ops._OPERATIONS, ord(".")}


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4).map(OrderedDict)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=60)
@given(value=VALUES)
def test_a_tree_stands_for_the_value_that_was_pickled(protocol: int, value: Any) -> None:
    """For any value of plain containers and scalars, in any protocol, the tree reads back as that value, to the last byte."""
    data = pickle.dumps(value, protocol)
    found = read_pickle(data + b"what follows STOP")
    assert plain(found.value) == value
    assert found.end == len(data)
    assert found.protocol == (protocol if protocol >= 2 else 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shared_and_cyclic_values_keep_their_identity(protocol: int) -> None:
    """What the pickle refers to twice is one object in the tree, and a list may hold itself."""
    shared: dict[str, int] = {"a": 1}
    cycle: list[Any] = [shared, shared]
    cycle.append(cycle)
    found = read_pickle(pickle.dumps(cycle, protocol)).value
    assert isinstance(found, list)
    assert found[0] is found[1]
    assert found[2] is found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_calls_become_nodes(protocol: int) -> None:
    """A reduced object is the call that would rebuild it, with its state and its items, and its names are recorded."""
    found = read_pickle(pickle.dumps([defaultdict(list, a=2), slice(1, 2), {1, 2}], protocol))
    assert isinstance(found.value, list)
    made = found.value[0]
    assert isinstance(made, Built)
    assert isinstance(made.function, Global)
    assert made.function.name == "collections.defaultdict"
    assert made.items == [("a", 2)]
    assert {"builtins.list", "collections.defaultdict", "builtins.slice"} <= set(found.names)


class _WithState:
    def __init__(self) -> None:
        self.weight = 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_states_are_kept_and_classes_are_not_imported(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance's attributes are in the tree although its class cannot be imported, and nothing tries to."""
    monkeypatch.setitem(sys.modules, "gone_tomorrow", sys.modules[__name__])
    monkeypatch.setattr(_WithState, "__module__", "gone_tomorrow")
    data = pickle.dumps(_WithState(), protocol)
    monkeypatch.undo()
    assert "gone_tomorrow" not in sys.modules
    found = read_pickle(data)
    assert isinstance(found.value, Built)
    (state,) = found.value.states
    assert plain(state) == {"weight": 5}
    assert "gone_tomorrow._WithState" in found.names
    assert "gone_tomorrow" not in sys.modules


def test_persistent_ids_of_both_kinds() -> None:
    """References to the outside keep what they refer to."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            return ("storage", "0") if isinstance(obj, complex) else None

    file = io.BytesIO()
    Pickler(file, 2).dump([1j])
    (found,) = read_pickle(file.getvalue()).value  # type: ignore[misc]
    assert isinstance(found, PersistentId)
    assert found.value == ("storage", "0")
    assert read_pickle(b"Pkey 1\n.").value.value == "key 1"  # type: ignore[attr-defined]


def test_a_hostile_call_is_only_a_node() -> None:
    """What would run a command when unpickled is a call in the tree, and its name is recorded, in every spelling of a call."""
    command = b"X\x04\0\0\0true"
    for data in (
        b"cos\nsystem\n" + command + b"\x85R.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93" + command + b"\x85R.",
        b"(cos\nsystem\n" + command + b"o.",
        b"(" + command + b"ios\nsystem\n.",
        b"cos\nsystem\n" + command + b"\x85\x81.",
        b"cos\nsystem\n" + command + b"\x85}\x92.",
    ):
        found = read_pickle(data)
        assert found.names == ("os.system",)
        assert isinstance(found.value, Built)


def test_hidden_names_are_recorded() -> None:
    """A computed name, a name of Python 2, an extension's number, and a class that is given a state all leave a name."""
    computed = b"\x80\x04cbuiltins\nstr\n\x8c\x02os\x85R\x8c\x06system\x93."
    assert read_pickle(computed).names == ("builtins.str", "<computed>.system")
    assert read_pickle(b"c__builtin__\neval\n.").names == ("builtins.eval",)
    assert read_pickle(b"\x82\x07.").names == ("copyreg.extension_7",)
    assert read_pickle(b"ccollections\nOrderedDict\n}b.").names == (
        "collections.OrderedDict",
        "collections.OrderedDict.__setstate__",
    )


@pytest.mark.parametrize("beyond", [1, 2, 2**63])
def test_a_frame_past_the_end(beyond: int) -> None:
    """A frame's eight bytes of length may reach the end of the pickle and no further (pickletools' opcode FRAME)."""
    body = b"]" * 13 + b"N."
    whole = b"\x80\x04\x95" + len(body).to_bytes(8, "little") + body
    assert read_pickle(whole)
    with pytest.raises(BrokenPickleError, match="frame"):
        read_pickle(b"\x80\x04\x95" + (len(body) + beyond).to_bytes(8, "little") + body)


def test_names_before_a_break_are_not_lost() -> None:
    """A pickle that calls first and breaks afterwards still tells what it called."""
    with pytest.raises(BrokenPickleError) as caught:
        read_pickle(b"cos\nsystem\nX\x04\0\0\0true\x85R\xff")
    assert caught.value.names == ("os.system",)
    assert caught.value.offset == 22


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"N",
        b".",
        b"0.",
        b"\x80\x06.",
        b"\xff",
        b"\x95" + struct.pack("<Q", 2**40) + b"N.",
        b"h\x07.",
        b"g-1\n.",
        b"Np-1\n.",
        b"q\0.",
        b"N(q\0.",
        b"N(00\x85.",
        b"N(\x85.",
        b"t.",
        b"e.",
        b"](1e.",
        b"N(Ne.",
        b"}(Nu.",
        b"}Ns.",
        b"]NNs.",
        b"NNNs.",
        b"NNa.",
        b"(o.",
        b"(Nd.",
        b"R.",
        b"X\xff\xff\xff\xffab.",
        b"\x8d" + struct.pack("<Q", 2**63) + b"ab.",
        b"T\xff\xff\xff\xffab.",
        b"\x8b\xff\xff\xff\xffab.",
        b"Iabc\n.",
        b"Fabc\n.",
        b"I1",
        b"K",
        b"G\0\0",
        b"gx\n.",
        b"cos\n",
        b"V" + b"x" * 70_000 + b"\n.",
    ],
)
def test_broken_streams_are_refused(data: bytes) -> None:
    """A stream that is cut off, reaches below its stack, or sets what cannot be set is one error."""
    with pytest.raises(BrokenPickleError):
        read_pickle(data)


def test_long_values_are_passed_over() -> None:
    """Text longer than a name, bytes and huge integers are no memory: they become one opaque value."""
    value = ["x" * 5_000, b"y" * 10, 2**4096, bytearray(100)]
    assert read_pickle(pickle.dumps(value, 5)).value == [OPAQUE] * 4
    assert read_pickle(b"L" + b"1" * 5_000 + b"L\n.").value is OPAQUE


@pytest.mark.parametrize(
    ("bound", "limit", "data"),
    [
        ("MAX_MEMO", 10, b"N" + b"\x94" * 11 + b"."),
        ("MAX_GLOBALS", 10, b"".join(b"ca\nb%d\n" % number for number in range(11)) + b"."),
    ],
)
def test_the_memo_and_the_names_are_bounded(
    bound: str, limit: int, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More memo entries or names than the stated bounds end the reading."""
    monkeypatch.setattr(pickle_machine, bound, limit)
    with pytest.raises(BrokenPickleError, match="more than 10"):
        read_pickle(data)


@pytest.mark.parametrize("data", [b"N" * 30_000 + b".", b"(" * 30_000 + b"."])
def test_the_stack_is_bounded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack or marks that only grow end the reading."""
    monkeypatch.setattr(pickle_ops, "MAX_STACK", 10_000)
    with pytest.raises(BrokenPickleError, match="stack grows past"):
        read_pickle(data)


def test_the_number_of_opcodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of more opcodes than the bound ends, however little each one does."""
    monkeypatch.setattr(pickle_ops, "MAX_OPCODES", 8_192)
    with pytest.raises(BrokenPickleError, match="opcodes"):
        read_pickle(b"N0" * 10_000 + b".")


def test_a_memo_bomb_costs_no_more_than_its_opcodes() -> None:
    """Tuples that hold the one before twice, which take 2^200 steps to hash or compare, are read at once, as dictionary keys too."""
    doubled = b"N" + b"".join(b"q\0h\0\x86" for _ in range(200))
    assert isinstance(read_pickle(doubled + b".").value, tuple)
    assert isinstance(read_pickle(b"}" + doubled + b"Ns.").value, PickledDict)


ARGUMENTS = st.sampled_from([b"", b"\0", b"\1", b"a\n", b"1\n", b"os\nsystem\n", b"\1\0\0\0a", b"\2\0"])
PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(pickle_ops._OPERATIONS)), ARGUMENTS), max_size=40).map(
    lambda program: b"".join(bytes([code]) + argument for code, argument in program) + b"."
)


@settings(max_examples=400)
@given(st.binary(max_size=200) | PROGRAMS)
def test_whatever_the_bytes_only_the_documented_error_escapes(data: bytes) -> None:
    """Random bytes and random programs end with a tree or with BrokenPickleError."""
    try:
        found = read_pickle(data)
    except BrokenPickleError:
        return
    assert found.end <= len(data)


@settings(max_examples=300)
@given(st.data())
def test_damaged_pickles_agree_with_pickletools_on_where_they_end(data: st.DataObject) -> None:
    """Where a damaged pickle is still read, it ends at the byte where pickletools sees its STOP."""
    content = bytearray(
        pickle.dumps(
            {"a": [1, 2.5, "text", (None, True)], "b": OrderedDict(c=2**40)}, data.draw(st.sampled_from(PROTOCOLS))
        )
    )
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_pickle(bytes(content))
    except BrokenPickleError:
        return
    try:
        stop = [position for known, _, position in pickletools.genops(bytes(content)) if known.name == "STOP"][-1]
    except ValueError:
        return  # pickletools decodes arguments that are passed over here
    assert stop is not None
    assert found.end == stop + 1
