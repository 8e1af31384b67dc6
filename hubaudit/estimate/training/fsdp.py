"""What PyTorch's FSDP holds on each process: shards with their padding, gathered layers, gradients on their way. ``data`` of both versions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.component import component, given
from hubaudit.estimate.training.optimizers import state_component
from hubaudit.estimate.training.tensors import Trained, elements_of, trained_as
from hubaudit.facts.loading import converts, loaded_groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.estimate.training.states import Standing
    from hubaudit.types import Component, ModelFacts

_COMMIT = "pytorch cf30153c4c13 (2.13.0)"
_SHARDS = {
    1: f"{_COMMIT} torch/distributed/fsdp/_flat_param.py: the parameters of a layer in one flat tensor, padded to be divisible by the processes",
    2: f"{_COMMIT} torch/distributed/fsdp/_fully_shard/_fsdp_param.py, _init_sharded_param: each parameter's first dimension in equal pieces, the last "
    "ones padded",
}
_GATHERED = {
    1: f"{_COMMIT} torch/distributed/fsdp/_runtime_utils.py: the layer at work and the next, and the root, which stays whole from forward to backward",
    2: f"{_COMMIT} torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, wait_for_unshard: the layer at work, the buffer of one more, and the root",
}
_REDUCED = {
    1: f"{_COMMIT} torch/distributed/fsdp/_runtime_utils.py, _reduce_grad and _get_reduce_scatter_tensors: a layer's whole gradient, and its copy where it is reduced in another type "
    "or has to be padded",
    2: f"{_COMMIT} torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce: a layer's whole gradients and the padded buffer of the "
    "reduce-scatter",
}
_ADAPTER = "adapter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A model cut by FSDP: ``base`` and ``trained`` are one process's shards (of the first, which has most) beside the whole ones.

    ``unit`` and ``root`` are elements, padding among them, of one layer and of what lies outside layers; ``unit_gradient_elements`` those of one layer
    that have gradients, ``padded_gradient_elements`` the same with the padding that their reduction needs.
    """

    version: int
    base_elements: int
    base_shard_elements: int
    trained_elements: int
    trained: tuple[Trained, ...]
    unit_elements: int
    root_elements: int
    unit_gradient_elements: int
    padded_gradient_elements: int

    def share(self, part: Component, setting: TrainSetting, held: Standing) -> Component:
        """One process's share of a standing component; others are whole."""
        if part.category == "OptimizerState":
            own = given(held.own_bits, f"table:recipes.toml#{setting.recipe.name}")
            made = state_component(self.trained, setting.optimizer, own)
            return replace(made, sources=(*made.sources[:-1], f"{made.sources[-1]}; {_SHARDS[self.version]}"))
        if part.id == "weights":
            return _scaled(part, self.base_shard_elements, self.base_elements, self.version)
        if part.category == "Gradient" or part.id in ("master_weights", "adapters"):
            return _scaled(part, elements_of(self.trained), self.trained_elements, self.version)
        return part

    def buffers(self, phase: str, setting: TrainSetting, held: Standing) -> Iterator[Component]:
        """Layers that are whole for a while, and their gradients before they are divided."""
        if phase not in ("forward", "loss", "backward"):
            return
        where = "shapes of the tensors, padded"
        width = given(gathered_bits(setting), f"table:recipes.toml#{setting.recipe.name}")
        inputs = {
            "unit_elements": given(self.unit_elements, where),
            "root_elements": given(self.root_elements, where),
            "gathered_bits": width,
        }
        formula = "(2 * unit_elements + root_elements) * gathered_bits // 8"
        yield component("gathered", "Workspace", formula, inputs, exactness="formula", source=_GATHERED[self.version])
        if phase == "backward":
            yield self._reduced(setting, held)

    def _reduced(self, setting: TrainSetting, held: Standing) -> Component:
        bits = gathered_bits(setting) if setting.adapters is None else held.gradient_bits
        reduced = max(bits, setting.recipe.gradient_bits) if setting.adapters is None else bits
        is_whole = self.padded_gradient_elements == self.unit_gradient_elements
        extra = 0 if self.version == 1 and reduced == bits and is_whole else reduced
        inputs = {
            "unit_gradient_elements": given(self.unit_gradient_elements, "shapes of the trainable tensors"),
            "gradient_bits": given(bits, f"table:recipes.toml#{setting.recipe.name}"),
            "padded_gradient_elements": given(self.padded_gradient_elements, "the same, padded"),
            "reduce_bits": given(extra, "0 where the gradient itself is what is reduced"),
        }
        formula = "(unit_gradient_elements * gradient_bits + padded_gradient_elements * reduce_bits) // 8"
        return component("buckets", "Workspace", formula, inputs, exactness="formula", source=_REDUCED[self.version])


def gathered_bits(setting: TrainSetting) -> int:
    """Width of whole parameters: where the recipe has a master copy, its shards alone live on and are gathered in 16 bit."""
    recipe = setting.recipe
    return bits_of()[recipe.compute] if recipe.master_bits else recipe.weight_bits


def with_shards_alone(setting: TrainSetting) -> TrainSetting:
    """FSDP needs no copy beside its shards: they are in the width that the optimizer updates, and so are the gradients that it is given."""
    recipe = setting.recipe
    if not recipe.master_bits:
        return setting
    return replace(
        setting,
        recipe=replace(
            recipe, weight_bits=recipe.master_bits, gradient_bits=32, master_bits=0, widened_gradient_bits=0
        ),
    )


def cut(facts: ModelFacts, held: Standing, version: int, processes: int) -> Cut:
    """The model divided among ``processes``, each decoder layer a unit, the rest the root."""
    layers = max(1, facts.layers.value or 1)
    base = tuple(trained_as(group) for group in loaded_groups(facts) if converts(group) and group.parameters)
    within = tuple(one for one in base if one.in_layers)
    trained_within = tuple(one for one in held.trained if one.in_layers)
    pieces = _pieces_of_flat if version == 1 else _pieces_of_each
    unit = elements_of(pieces(within, layers, processes)) * processes
    return Cut(
        version=version,
        base_elements=elements_of(base),
        base_shard_elements=elements_of(_divided(base, layers, processes, version)),
        trained_elements=elements_of(held.trained),
        trained=_divided(held.trained, layers, processes, version),
        unit_elements=-(-unit // layers),
        root_elements=elements_of(pieces(_outside(base), 1, processes)) * processes,
        unit_gradient_elements=-(-elements_of(trained_within) // layers),
        padded_gradient_elements=-(-elements_of(pieces(trained_within, layers, processes)) * processes // layers),
    )


def _outside(tensors: tuple[Trained, ...]) -> tuple[Trained, ...]:
    return tuple(one for one in tensors if not one.in_layers)


def _divided(tensors: tuple[Trained, ...], layers: int, processes: int, version: int) -> tuple[Trained, ...]:
    if version == 2:
        return _pieces_of_each(tensors, layers, processes)
    inside = tuple(one for one in tensors if one.in_layers)
    return _pieces_of_flat(inside, layers, processes) + _pieces_of_flat(_outside(tensors), 1, processes)


def _pieces_of_each(tensors: tuple[Trained, ...], _: int, processes: int) -> tuple[Trained, ...]:
    """FSDP2: the first dimension of every tensor in pieces of the rounded-up size."""
    return tuple(
        replace(one, shape=(-(-one.shape[0] // processes), *one.shape[1:])) if one.shape else one for one in tensors
    )


def _pieces_of_flat(tensors: tuple[Trained, ...], layers: int, processes: int) -> tuple[Trained, ...]:
    """FSDP1: one flat tensor for each unit, rounded up."""
    whole = sum(one.count * prod(one.shape) for one in tensors)
    if not whole:
        return ()
    role = _ADAPTER if all(one.role == _ADAPTER for one in tensors) else "flat"
    return (Trained(role=role, shape=(-(-whole // (layers * processes)),), count=layers),)


def _scaled(part: Component, shard_elements: int, elements: int, version: int) -> Component:
    """``part`` times the share of elements that a process has."""
    *wheres, source = part.sources
    if not elements:
        return part
    return replace(
        part,
        **{name: -(-getattr(part, name) * shard_elements // elements) for name in ("bytes", "low_bytes", "high_bytes")},
        formula=f"ceil_div(({part.formula}) * shard_elements, all_elements)",
        inputs={**part.inputs, "shard_elements": shard_elements, "all_elements": elements},
        sources=(
            *wheres,
            "shard_elements: shapes of the tensors, padded",
            "all_elements: shapes of the tensors",
            f"{source}; {_SHARDS[version]}",
        ),
        exactness="formula",
    )
