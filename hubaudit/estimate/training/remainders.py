"""What PyTorch's allocator hands out with tensors beyond their own bytes: remainders of blocks that are too small to be cut off."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.estimate.component import component, given
from hubaudit.estimate.training.tensors import whole_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hubaudit.estimate.moments import Moment
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.estimate.training.states import Standing
    from hubaudit.estimate.training.tensors import Trained
    from hubaudit.types import Component, ModelFacts

_MIB = 2**20
_ROUNDED_TO = 512
#: Up to this a tensor lies among small ones, where every remainder is cut off; in larger blocks one of this size or less stays with its tensor.
_SMALL = _MIB
#: Below _LARGE a segment of 20 MiB is asked for and shared, from there on one of the tensor's own, rounded up.
_SEGMENT, _LARGE, _SEGMENT_ROUNDED_TO = 20 * _MIB, 10 * _MIB, 2 * _MIB
_SOURCE = (
    "pytorch 2.13.0 c10/cuda/CUDACachingAllocator.cpp, should_split: a remainder of 1 MiB or less stays with its block and counts as allocated; "
    "tensors laid layer by layer into segments of 20 MiB, larger ones into their own"
)


def remainders(facts: ModelFacts, held: Standing, setting: TrainSetting) -> tuple[Component | None, Component | None]:
    """Those of weights and states, and those of gradients once all of them are there; ``None`` where they are nothing or not known.

    Buffers of several processes and packed weights are laid out otherwise.
    """
    if setting.sharing.replicas > 1 or setting.is_prepared:
        return None, None
    layers = max(1, facts.layers.value or 1)
    weights = unsplit_bytes(whole_model(facts), layers, setting.recipe.weight_bits)
    states = unsplit_bytes(tuple(_states(held, setting)), layers, held.own_bits)
    gradients = unsplit_bytes(held.trained, layers, held.gradient_bits)
    return _component("block_remainders", weights + states), _component("gradient_remainders", gradients)


def with_remainders(moment: Moment, held: Standing, beyond: tuple[Component | None, Component | None]) -> Moment:
    """The moment with the remainders of what is whole then."""
    of_standing, of_gradients = beyond
    if moment.phase == "load":
        return moment
    has_all = any(part.category == "Gradient" and part.bytes == held.gradients.bytes for part in moment.components)
    made = (of_standing, of_gradients if has_all else None)
    return replace(moment, components=(*moment.components, *(part for part in made if part is not None)))


def _states(held: Standing, setting: TrainSetting) -> Iterator[Trained]:
    """A tensor for each state as large as its parameter, in the order in which an update makes them."""
    for tensor in held.trained:
        row = setting.optimizer.row_of(tensor)
        yield from (tensor,) * (row.in_own_width.get("elements", 0) if row is not None else 0)


@cache
def unsplit_bytes(tensors: tuple[Trained, ...], layers: int, bits: int) -> int:
    """Bytes of all remainders that stay with tensors of so many bits an element, laid into fresh segments one after the other."""
    free: list[int] = []
    kept = 0
    for asked in _sizes(tensors, layers, bits):
        size = -(-asked // _ROUNDED_TO) * _ROUNDED_TO
        if size <= _SMALL:
            continue
        at = bisect_left(free, size)
        block = free.pop(at) if at < len(free) else _segment(size)
        if block - size > _SMALL:
            insort(free, block - size)
        else:
            kept += block - size
    return kept


def _segment(size: int) -> int:
    return _SEGMENT if size < _LARGE else -(-size // _SEGMENT_ROUNDED_TO) * _SEGMENT_ROUNDED_TO


def _sizes(tensors: Iterable[Trained], layers: int, bits: int) -> Iterator[int]:
    """Bytes of every tensor: what lies outside layers, then layer by layer; the experts of a layer are one tensor, as transformers 5 loads them."""
    within = [one for one in tensors if one.in_layers]
    for one in tensors:
        if not one.in_layers:
            yield from (one.elements * bits // 8,) * one.count
    for layer in range(layers):
        for one in within:
            number = one.count * (layer + 1) // layers - one.count * layer // layers
            if one.role == "expert":
                yield one.elements * number * bits // 8
            else:
                yield from (one.elements * bits // 8,) * number


def _component(id: str, size_bytes: int) -> Component | None:
    if not size_bytes:
        return None
    inputs = {"unsplit_bytes": given(size_bytes, "shapes of the tensors")}
    return component(
        id, "Fragmentation", "unsplit_bytes", inputs, exactness="formula", source=_SOURCE, band_percent=(100, 100)
    )
