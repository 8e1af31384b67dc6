"""The tensors of a torch checkpoint: a walk over the tree that its pickle would build, which gives each tensor its name.

The calls met on the way: PyTorch 2.13, torch/_utils.py and torch/_tensor.py (``_rebuild_from_type_v2``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hubaudit.formats.pickle_machine import BrokenPickleError, Built, PickledDict
from hubaudit.formats.quoting import shown
from hubaudit.formats.torch_rebuild import Rebuilt, argument, called_name, ints, rebuilt, spelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.formats.pickle_machine import Pairs, Values
    from hubaudit.types import Json

MAX_TENSORS = 250_000
MAX_NAME_LENGTH = 1_024
MAX_DEPTH = 256
_MAX_WRAPPERS = 16

#: Builders that return their first argument, a tensor, as something else.
_WRAPPERS: Final = {
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
}
_QUANTIZED: Final = "torch._utils._rebuild_qtensor"
_SPARSE: Final = "torch._utils._rebuild_sparse_tensor"
_FROM_TYPE: Final = "torch._tensor._rebuild_from_type_v2"
_WRAPPER_SUBCLASS: Final = "torch._utils._rebuild_wrapper_subclass"
#: What a sparse tensor keeps, by its number of parts (the arguments of torch.sparse_coo_tensor and torch.sparse_compressed_tensor).
_SPARSE_PARTS: Final = {2: ("indices", "values"), 3: ("compressed_indices", "plain_indices", "values")}
#: Where an nn.Module keeps its tensors and its children. Its own state_dict() leaves these levels out of the names.
_MODULE_LEVELS: Final = {"_parameters", "_buffers", "_modules"}
_DICTIONARIES: Final = {"collections.OrderedDict", "builtins.dict"}

Child = tuple[str, object]


@dataclass(slots=True)
class Declared:
    """What one pickle declares: its tensors by name, in order, and which of the names stand for tensors of other kinds.

    ``quantized`` are tensors of torch's own quantized dtypes; their scales, where these are tensors, follow under ``<name>.quantizer``.
    ``sparse`` are names whose parts follow under ``<name>.indices``, ``<name>.values``. ``subclasses`` are names of wrapper subclasses
    (class, dtype and shape that it shows); the tensors it keeps follow under ``<name>.<attribute>``. ``under`` counts the tensors
    below each top-level key, under ``""`` those that lie at the top themselves.
    """

    tensors: list[tuple[str, Rebuilt]] = field(default_factory=list)
    quantized: list[str] = field(default_factory=list)
    sparse: list[str] = field(default_factory=list)
    subclasses: dict[str, Json] = field(default_factory=dict)
    under: dict[str, int] = field(default_factory=dict)


def declared_tensors(root: object, root_name: str = "") -> Declared:
    """Every tensor under ``root``, the value of a checkpoint's pickle.

    A name is the path of keys and indices from ``root_name`` on, joined with dots; where two paths read alike the later ones get ``#2``,
    ``#3``. A container that is in several places is looked into once, under its first name; a tensor that is in several places has
    several names.

    Raises:
        BrokenPickleError: a tensor's arguments are impossible, or there are more tensors or levels than the bounds above.
    """
    walk = _Walk()
    declared = walk.declared
    pending: list[tuple[str, object, int, str]] = [(root_name, root, 0, "")]
    while pending:
        name, value, depth, top = pending.pop()
        before = len(declared.tensors)
        children = walk.visit(name, value)
        if len(declared.tensors) > before:
            key = top if depth > 1 else ""
            declared.under[key] = declared.under.get(key, 0) + len(declared.tensors) - before
        if children and depth >= MAX_DEPTH:
            raise BrokenPickleError(f"the checkpoint is nested more than {MAX_DEPTH} levels deep")
        for part, child in reversed(children):
            pending.append((_joined(name, part), child, depth + 1, top if depth else part))
    return declared


class _Walk:
    """Collects the tensors met on the way, and remembers what has been looked into, so that no work is done twice."""

    def __init__(self) -> None:
        self.declared = Declared()
        self._seen: set[int] = set()
        self._states_seen: set[int] = set()
        self._names: dict[str, int] = {}

    def visit(self, name: str, value: object) -> Sequence[Child]:
        """Note the tensor that ``value`` is, if it is one, and return what is below it."""
        if isinstance(value, Built):
            try:
                below = self._tensor(name, value)
            except BrokenPickleError as error:
                raise BrokenPickleError(f"tensor {shown(name)}: {error.reason}") from None
            if below is not None:
                return below if self._fresh(value) else ()
        if not self._fresh(value):
            return ()
        if isinstance(value, PickledDict):
            return _named(value.items)
        return self._inside(value) if isinstance(value, Built) else _numbered(value)

    def _fresh(self, value: object) -> bool:
        """Whether this very object, which the tree keeps alive, is met for the first time."""
        if id(value) in self._seen:
            return False
        self._seen.add(id(value))
        return True

    def _states_once(self, value: Built) -> list[Child]:
        if id(value) in self._states_seen:
            return []
        self._states_seen.add(id(value))
        return _states(value.states)

    def _tensor(self, name: str, value: Built) -> list[Child] | None:
        """Note the tensor that ``value`` would be and return what else hangs on it; ``None`` where it is none."""
        below: list[Child] = []
        for _ in range(_MAX_WRAPPERS):
            called, arguments = called_name(value.function), value.arguments
            below += self._states_once(value)
            if called == _FROM_TYPE:
                below += _states([argument(arguments, 3)])
                return below + self._of_type(name, argument(arguments, 0), argument(arguments, 2))
            inner = arguments[0] if called in _WRAPPERS and isinstance(arguments, tuple) and arguments else None
            if isinstance(inner, Built) and isinstance(arguments, tuple):
                below += _states(arguments[1:4])
                value = inner
                continue
            own = self._plain(name, called, arguments)
            return None if own is None else below + own
        raise BrokenPickleError(f"wrapped more than {_MAX_WRAPPERS} times")

    def _plain(self, name: str, called: str, arguments: object) -> list[Child] | None:
        tensor = rebuilt(called, arguments)
        if tensor is not None:
            unique = self._unique(name)
            self.declared.tensors.append((unique, tensor))
            if called == _QUANTIZED:
                self.declared.quantized.append(unique)
                return [("quantizer", argument(arguments, 4))]
            return []
        if called == _SPARSE:
            self.declared.sparse.append(self._unique(name))
            return _sparse_parts(argument(arguments, 1))
        return None

    def _of_type(self, name: str, function: object, arguments: object) -> list[Child]:
        """A tensor of a class of its own: a plain one in disguise, or a wrapper around tensors that its state holds."""
        called = called_name(function)
        own = self._plain(name, called, arguments)
        if own is not None:
            return own
        if called == _WRAPPER_SUBCLASS:
            self.declared.subclasses[self._unique(name)] = {
                "class": called_name(argument(arguments, 0)),
                "dtype": spelled(called_name(argument(arguments, 1)).removeprefix("torch.")),
                "shape": list(ints(argument(arguments, 2))),
            }
            return []
        return [("", arguments)]

    def _unique(self, name: str) -> str:
        if len(self._names) >= MAX_TENSORS:
            raise BrokenPickleError(f"more than {MAX_TENSORS} tensors")
        if len(name) > MAX_NAME_LENGTH:
            raise BrokenPickleError(f"the name is longer than {MAX_NAME_LENGTH} characters")
        times, unique = self._names.get(name, 0), name
        while unique in self._names:
            times += 1
            unique = f"{name}#{times}"
        self._names[name] = max(times, 1)
        self._names.setdefault(unique, 1)
        return unique

    def _inside(self, value: Built) -> list[Child]:
        """What an object holds: what it was called with, a dictionary's pairs, a list's elements, and its state."""
        children: list[Child] = []
        if self._fresh(value.arguments):
            pairs = _pairs(value.arguments) if called_name(value.function) in _DICTIONARIES else None
            children += _numbered(value.arguments) if pairs is None else _named(pairs)
        return children + _named(value.items) + _numbered(value.elements) + _states(value.states)


def _may_hold_tensors(value: object) -> bool:
    if isinstance(value, PickledDict):
        return bool(value.items)
    if isinstance(value, Built):
        held = value.arguments or value.items or value.elements or value.states
        return bool(held) or called_name(value.function).startswith(
            "torch._utils."
        )  # a tensor of no arguments is broken
    return isinstance(value, list | tuple) and bool(value)


def _numbered(values: object) -> list[Child]:
    if not isinstance(values, list | tuple):
        return []
    return [(str(index), child) for index, child in enumerate(values) if _may_hold_tensors(child)]


def _named(items: Pairs) -> list[Child]:
    """Pairs by their key's text, the last one of each key, in the order in which the keys came first."""
    named: dict[str, object] = {}
    for index, (key, child) in enumerate(items):
        plain = isinstance(key, str | int | float) or key is None
        named[str(key) if plain else f"[{index}]"] = child
    return [("" if key in _MODULE_LEVELS else key, child) for key, child in named.items() if _may_hold_tensors(child)]


def _states(states: Values | tuple[object, ...]) -> list[Child]:
    """An object's states: each the dictionary of its attributes, or a pair of that and its slots."""
    parts: list[object] = []
    for state in states:
        parts += state if isinstance(state, tuple) and len(state) == 2 else [state]
    return [("", part) for part in parts if _may_hold_tensors(part)]


def _sparse_parts(data: object) -> list[Child]:
    """The tensors that a sparse one keeps, by the names of their arguments; its size may be an object too."""
    parts = [part for part in data if isinstance(part, Built)] if isinstance(data, tuple) and len(data) < 8 else []
    parts = [part for part in parts if called_name(part.function) != "torch.Size"]
    names = _SPARSE_PARTS.get(len(parts), range(len(parts)))
    return [(str(names[at]), part) for at, part in enumerate(parts)]


def _pairs(arguments: object) -> Pairs | None:
    """The pairs of ``OrderedDict([[key, value], …])``, which is how Python 2 wrote one."""
    values = arguments[0] if isinstance(arguments, tuple) and len(arguments) == 1 else None
    if not isinstance(values, list):
        return None
    pairs = [(pair[0], pair[1]) for pair in values if isinstance(pair, list | tuple) and len(pair) == 2]
    return pairs if len(pairs) == len(values) else None


def _joined(name: str, part: str) -> str:
    """A path one level longer, cut where it is too long already: only a tensor's name is an error."""
    return (f"{name}.{part}" if name and part else name or part)[: MAX_NAME_LENGTH + 1]
