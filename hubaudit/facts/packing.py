"""Stored tensors → what they hold: packed containers unpacked into parameters, scales and other statistics told from weights."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from hubaudit.data.dtypes import bits_of, is_float
from hubaudit.facts.packing_layouts import LAYOUTS, Setting, Stored, Unpacked
from hubaudit.facts.packing_torchao import declared_tensors, unpack_declared
from hubaudit.facts.quantization import UNNAMED, Scheme, scheme_by_names
from hubaudit.facts.quantizers import common_auxiliary, methods, plain_integers, scale_dtypes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hubaudit.facts.packing_torchao import Declared
    from hubaudit.facts.quantizers import Container, Method
    from hubaudit.types import Config, TensorInfo

#: Integer dtypes that containers are made of. Wider ones hold indices and counters.
_NARROW = frozenset({"U8", "I8", "U16", "I16", "U32", "I32"})
_DECLARED = "declared"
UNBUILT = "quantization state"


class Held(NamedTuple):
    """What one stored tensor holds.

    ``parameters`` is 0 for scales and ``None`` where it cannot be told, which ``problem`` then explains. ``shape`` is the weight's own where it is
    packed and can be told. ``bits`` is the width of one value of a quantized weight, ``None`` for others. ``extra`` says why a runtime builds no
    tensor of it.
    """

    parameters: int | None
    shape: tuple[int, ...] | None = None
    bits: int | None = None
    is_scale: bool = False
    extra: str | None = None
    problem: str | None = None


_SCALE = Held(parameters=0, is_scale=True)
_UNBUILT = Held(parameters=0, is_scale=True, extra=UNBUILT)


class Unpack(Protocol):
    """What one tensor holds."""

    def __call__(self, tensor: TensorInfo, /) -> Held:
        """What ``tensor`` holds."""

    def told_apart(self, alike: Sequence[TensorInfo], /) -> Iterable[tuple[Held, Sequence[TensorInfo]]]:
        """Tensors of one dtype, one shape and one name but for the numbers, by what they hold."""


class _Plainly:
    """A tensor of a checkpoint that is not quantized: an element is a parameter.

    As on the Hub's own page, a tensor without dimensions counts none, and neither does a dtype that only scales have
    (huggingface.js fe42e680, parse-safetensors-metadata.ts).
    """

    def __call__(self, tensor: TensorInfo) -> Held:
        return _plain(tensor.dtype, tensor.shape)

    def told_apart(self, alike: Sequence[TensorInfo]) -> Iterable[tuple[Held, Sequence[TensorInfo]]]:
        return ((self(alike[0]), alike),)


PLAINLY: Unpack = _Plainly()


@lru_cache(maxsize=4096)
def _plain(dtype: str, shape: tuple[int, ...]) -> Held:
    if dtype in scale_dtypes():
        return _SCALE
    return Held(parameters=prod(shape) if shape else 0)


def unpacker(
    tensors: Mapping[str, TensorInfo], scheme: Scheme | None, metadata: Iterable[Config] = ()
) -> tuple[Scheme | None, Unpack]:
    """The scheme at work, and a function from a tensor to what it holds.

    Where the configs declare no scheme, names and shapes that only one method makes do.

    Args:
        tensors: all tensors of all weight files by name.
        scheme: what the configs declare.
        metadata: what the headers of the weight files say of themselves.
    """
    if scheme is None or scheme.name == UNNAMED:
        scheme = _scheme_of_names(tensors) or scheme
    if scheme is None:
        return None, PLAINLY
    if scheme.method is None:
        problem = f"weights quantized by {scheme.name!a}, whose layout is not known"
        return scheme, _Unknown(problem)
    return scheme, _Unpacker(tensors, scheme, scheme.method, metadata)


def _scheme_of_names(tensors: Mapping[str, TensorInfo]) -> Scheme | None:
    """A scheme for repositories whose configs declare none: the first method of which a container and its companions are there and fit."""
    narrow = [tensor for tensor in tensors.values() if tensor.dtype in _NARROW]
    if not any(len(tensor.shape) > 1 for tensor in narrow):
        return None
    for method in methods():
        rows = [row for row in method.containers if row.needs and row.tells_its_method]
        for tensor in narrow:
            if any(_fits(tensor, tensors, row) for row in rows):
                return scheme_by_names(method, tensor.name)
    return None


def _fits(tensor: TensorInfo, names: Mapping[str, TensorInfo], row: Container) -> bool:
    beside = _beside(tensor, names, row) if tensor.dtype in row.dtypes and row.layout != _DECLARED else None
    return beside is not None and bool(_fitting(tensor.dtype, tensor.shape, beside, row, (Setting(),)))


class _Unknown:
    """Tensors of a method that is not known."""

    def __init__(self, problem: str) -> None:
        self._held = Held(parameters=None, problem=problem)

    def __call__(self, tensor: TensorInfo) -> Held:
        return self._held

    def told_apart(self, alike: Sequence[TensorInfo]) -> Iterable[tuple[Held, Sequence[TensorInfo]]]:
        return ((self._held, alike),)


class _Unpacker:
    """The tensors of one repository under one method."""

    def __init__(
        self, tensors: Mapping[str, TensorInfo], scheme: Scheme, method: Method, metadata: Iterable[Config]
    ) -> None:
        self._scheme = scheme
        self._method = method
        self._names = tensors
        self._declared: dict[str, Declared] = declared_tensors(metadata) if method.classes else {}
        self._auxiliary = common_auxiliary() + method.auxiliary
        self._alone: dict[tuple[str, tuple[int, ...], bool], Held] = {}
        consumed = tuple(ending for group in method.unbuilt_beside.values() for ending in group)
        self._apart_endings = self._auxiliary + method.unbuilt + consumed + tuple(method.beside)
        self._containers = [
            *method.beside.items(),
            *((ending, container) for container, endings in method.unbuilt_beside.items() for ending in endings),
        ]
        self._rows = {
            dtype: tuple(row for row in method.containers if dtype in row.dtypes)
            for row in method.containers
            for dtype in row.dtypes
        }

    def told_apart(self, alike: Sequence[TensorInfo]) -> Iterable[tuple[Held, Sequence[TensorInfo]]]:
        """By what lies beside each; where a config or a header speaks of single modules, each alone. Alike but for numbers, they end alike."""
        rows = self._rows.get(alike[0].dtype, ())
        if self._scheme.by_module or self._scheme.by_pattern or any(row.layout == _DECLARED for row in rows):
            return [(self(tensor), (tensor,)) for tensor in alike]
        looked_for = [(row.ending, companion) for row in rows for companion in row.companions] + self._containers
        companions = list(zip(*self._companions(alike, looked_for), strict=True))
        if len(set(companions)) <= 1:
            return [(self(alike[0]), alike)]
        by_companions: dict[tuple[object, ...], list[TensorInfo]] = {}
        for tensor, found in zip(alike, companions, strict=True):
            by_companions.setdefault(found, []).append(tensor)
        return [(self(those[0]), those) for those in by_companions.values()]

    def _companions(
        self, alike: Sequence[TensorInfo], looked_for: Iterable[tuple[str, str]]
    ) -> Iterator[list[tuple[str, tuple[int, ...]] | None]]:
        """For each ending that these names have, and what may lie beside such a tensor: dtype and shape of what does, one for each tensor."""
        for ending, companion in looked_for:
            if alike[0].name.endswith(ending):
                others = [
                    self._names.get(tensor.name[: len(tensor.name) - len(ending)] + companion) for tensor in alike
                ]
                yield [None if other is None else other[1:3] for other in others]

    def __call__(self, tensor: TensorInfo) -> Held:
        if tensor.dtype in scale_dtypes():
            return _SCALE
        apart = self._apart(tensor.name) if tensor.name.endswith(self._apart_endings) else None
        if apart is not None:
            return apart
        for row in self._rows.get(tensor.dtype, ()):
            weight = self._weight(tensor, row)
            if weight is not None:
                return _held(weight)
        is_integer = tensor.dtype in _NARROW and tensor.name.endswith(plain_integers())
        key = (tensor.dtype, tensor.shape, is_integer)
        alone = self._alone.get(key)
        if alone is None:
            alone = self._alone[key] = self._held_alone(tensor, is_integer=is_integer)
        return alone

    def _held_alone(self, tensor: TensorInfo, *, is_integer: bool) -> Held:
        """What a tensor that nothing stands beside holds; tensors of one dtype and shape hold the same."""
        if tensor.dtype in self._method.whole_dtypes:
            return _held(Unpacked(elements=prod(tensor.shape), bits=bits_of()[tensor.dtype]))
        if tensor.dtype in _NARROW and tensor.shape and not is_integer:
            return Held(parameters=None, problem=f"how {self._scheme.name!a} packs such tensors is not known")
        if is_float(tensor.dtype) and bits_of()[tensor.dtype] == 8 and tensor.shape:
            return _held(Unpacked(elements=prod(tensor.shape), bits=8))
        return PLAINLY(tensor)

    def _apart(self, name: str) -> Held | None:
        """Scales, zeros, statistics, orders and shapes."""
        if name.endswith(self._method.unbuilt):
            return _UNBUILT
        if name.endswith(self._auxiliary):
            return _SCALE
        for container, endings in self._method.unbuilt_beside.items():
            if any(self._stands_beside(name, ending, container) for ending in endings):
                return _UNBUILT
        beside = self._method.beside.items()
        return _SCALE if any(self._stands_beside(name, ending, container) for ending, container in beside) else None

    def _stands_beside(self, name: str, ending: str, container: str) -> bool:
        return name.endswith(ending) and name[: len(name) - len(ending)] + container in self._names

    def _weight(self, tensor: TensorInfo, row: Container) -> Unpacked | None:
        """The weight that a container holds; ``None`` where the tensor is none, or its shape fits no setting, or several.

        Where the shapes allow several settings of the config that differ, its module patterns decide.
        """
        if row.layout == _DECLARED:
            return unpack_declared(tensor, row, self._declared, self._method.classes)
        beside = _beside(tensor, self._names, row)
        if beside is None:
            return None
        module = tensor.name[: len(tensor.name) - len(row.ending)].removesuffix(".weight")
        own = self._scheme.by_module.get(module)
        fitting = () if own is None else _fitting(tensor.dtype, tensor.shape, beside, row, (own,))
        fitting = fitting or _fitting(tensor.dtype, tensor.shape, beside, row, self._scheme.settings)
        if len({unpacked.elements for unpacked, _ in fitting}) <= 1:
            return fitting[0][0] if fitting else None
        named = self._scheme.named_for(module)
        return next((unpacked for unpacked, setting in fitting if setting == named), None)


@lru_cache(maxsize=4096)
def _held(found: Unpacked) -> Held:
    return Held(parameters=found.elements, shape=found.shape, bits=found.bits)


Companion: TypeAlias = "tuple[str, str, tuple[int, ...]]"
"""Ending, dtype and shape of a tensor that lies beside a container."""


def _beside(tensor: TensorInfo, names: Mapping[str, TensorInfo], row: Container) -> tuple[Companion, ...] | None:
    """The companions that are there; ``None`` where one is missing without which the tensor is no such container."""
    if not tensor.name.endswith(row.ending):
        return None
    stem = tensor.name[: len(tensor.name) - len(row.ending)]
    found: list[Companion] = []
    for ending in row.companions:
        other = names.get(stem + ending)
        if other is not None:
            found.append((ending, other.dtype, other.shape))
        elif ending in row.needs:
            return None
    return tuple(found)


@lru_cache(maxsize=4096)
def _fitting(
    dtype: str, shape: tuple[int, ...], beside: tuple[Companion, ...], row: Container, settings: tuple[Setting, ...]
) -> tuple[tuple[Unpacked, Setting], ...]:
    """What the container holds under each setting that its shape allows. Of 100,000 tensors of a large model, some ten differ in this."""
    stored = Stored(dtype, shape)
    companions = {ending: Stored(other, size) for ending, other, size in beside}
    tried = ((LAYOUTS[row.layout](stored, companions, row, setting), setting) for setting in settings)
    return tuple((unpacked, setting) for unpacked, setting in tried if unpacked is not None)
