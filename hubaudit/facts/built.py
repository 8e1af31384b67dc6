"""The parameters and saved buffers as transformers builds them, which is what its quantizers see: fused experts in one tensor, a tied head absent."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from hubaudit.facts.loading import loaded_groups
from hubaudit.facts.skeleton import describe
from hubaudit.types import BuiltTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hubaudit.facts.config_reader import ConfigReader
    from hubaudit.facts.packing import Held, Unpack
    from hubaudit.types import ModelFacts, ParameterCount, TensorInfo


def built_tensors(config: ConfigReader, counted: ParameterCount | None) -> tuple[BuiltTensor, ...]:
    """Every parameter of the model that the config describes, and the buffers that it saves, where they are as many as the weights hold; else nothing.

    Files may leave the buffers out. The names of files are not those of modules (a vision tower's prefix, one tensor an expert), so a file cannot tell which modules a
    quantizer converts. Where the counts differ, the config does not describe this checkpoint.
    """
    found = describe(config)
    if isinstance(found, str) or counted is None:
        return ()
    parameters = tuple(BuiltTensor(tensor.name, found.kinds[tensor.name], tensor.shape) for tensor in found.tensors)
    buffers = tuple(BuiltTensor(tensor.name, "buffer", tensor.shape) for tensor in found.buffers)
    for built in ((*parameters, *buffers), parameters):
        if elements(built) == counted.loaded:
            return built
    return ()


def elements(tensors: Iterable[BuiltTensor | TensorInfo]) -> int:
    """How many they hold as files' tensors are counted: one without dimensions counts none."""
    return sum(prod(tensor.shape) for tensor in tensors if tensor.shape)


class WithKnownShapes:
    """What ``held_by`` says, but where a flat container may hold one value less than it has room for, the config's shape of that weight decides.

    4 bit of bitsandbytes keep no shape outside of a tensor's data, which is never read: an odd number of values fills as many bytes as the even
    one above.
    """

    def __init__(self, held_by: Unpack, config: ConfigReader) -> None:
        found = describe(config)
        self._held_by = held_by
        self._shapes = {} if isinstance(found, str) else {tensor.name: tensor.shape for tensor in found.tensors}

    def __call__(self, tensor: TensorInfo) -> Held:
        """What ``tensor`` holds."""
        unpacked, shape = self._held_by(tensor), self._shapes.get(tensor.name)
        if shape is None or unpacked.bits is None or unpacked.shape is not None or unpacked.parameters is None:
            return unpacked
        fits = unpacked.parameters - prod(shape) in (0, 1)
        return unpacked._replace(parameters=prod(shape), shape=shape) if fits else unpacked

    def told_apart(self, alike: Sequence[TensorInfo]) -> Iterable[tuple[Held, Sequence[TensorInfo]]]:
        """Each alone: another layer's weight may have another shape."""
        return [(self(tensor), (tensor,)) for tensor in alike]


def is_built_so(facts: ModelFacts) -> bool:
    """Whether ``facts.built`` are the weights of these facts, which may be a share of the model that they describe, or more than it."""
    total = sum(group.parameters or 0 for group in loaded_groups(facts))
    return bool(facts.built) and _elements_of(_Same(facts.built)) == total


class _Same:
    """The same tensors, as a key: there are hundreds, and every device's share of a model has them."""

    def __init__(self, tensors: tuple[BuiltTensor, ...]) -> None:
        self.tensors = tensors

    def __hash__(self) -> int:
        return id(self.tensors)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.tensors is self.tensors


@lru_cache(maxsize=4)
def _elements_of(same: _Same) -> int:
    return elements(same.tensors)
