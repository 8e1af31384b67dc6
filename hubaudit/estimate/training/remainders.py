"""What PyTorch's allocator hands out with tensors beyond their own bytes: remainders of blocks that are too small to be cut off."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.estimate.component import component, given
from hubaudit.estimate.cuda_blocks import BLOCKS_SOURCE, Run, allocated_bytes, laid_out, rounded
from hubaudit.estimate.training.tensors import whole_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.estimate.moments import Moment
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.estimate.training.states import Standing
    from hubaudit.estimate.training.tensors import Trained
    from hubaudit.types import Component, ModelFacts

_SOURCE = f"{BLOCKS_SOURCE}; tensors laid layer by layer into segments of 20 MiB, larger ones into their own"


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
    runs = (Run(one.elements * bits // 8, one.count, one.in_layers, one.role == "expert") for one in tensors)
    sizes = tuple(laid_out(runs, layers))
    return allocated_bytes(sizes) - sum(map(rounded, sizes))


def _component(id: str, size_bytes: int) -> Component | None:
    if not size_bytes:
        return None
    inputs = {"unsplit_bytes": given(size_bytes, "shapes of the tensors")}
    return component(
        id, "Fragmentation", "unsplit_bytes", inputs, exactness="formula", source=_SOURCE, band_percent=(100, 100)
    )
