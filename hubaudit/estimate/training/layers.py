"""The layers of a model one by one, in the order of the forward pass: what mixes tokens in each, whether it has experts, and its share of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.estimate.training.tensors import TOWERS
from hubaudit.facts.loading import converts, loaded_groups

if TYPE_CHECKING:
    from hubaudit.estimate.training.block import Block
    from hubaudit.types import ModelFacts, TensorGroup

#: What a layer's backward pass comes to before attention.
_MLP_ROLES = frozenset({"mlp", "expert", "shared_expert", "router"})
#: What autocast makes 16-bit copies of.
_CAST_KINDS = frozenset({"linear", "bias", "experts", "conv1d"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """``mixer`` is the row of mixers.toml, empty for plain attention; ``routed`` that it has experts.

    ``elements`` are those of its floating-point weights, ``cast_elements`` those of matrices and their biases; ``mlp_elements`` and
    ``mlp_cast_elements`` those among them of its MLP.
    """

    mixer: str
    routed: bool
    elements: int
    mlp_elements: int
    cast_elements: int
    mlp_cast_elements: int

    @property
    def kind(self) -> tuple[str, bool]:
        """What layers alike have in common."""
        return self.mixer, self.routed


def layers_of(facts: ModelFacts, block: Block) -> tuple[Layer, ...]:
    """All layers: an encoder's first, then those of the layer plan."""
    encoder = encoder_layers(facts) if block.encoder_mixer is not None else 0
    mixers = [block.mixers.get(layer.kind, "") for layer in facts.layer_plan or ()]
    mixers = mixers or [""] * (facts.layers.value or 0)
    routed = _routed(facts, len(mixers))
    weights = _weights(facts, len(mixers), encoder)
    first = [(block.encoder_mixer or "", False)] * encoder
    kinds = [*first, *((mixer, at in routed) for at, mixer in enumerate(mixers))]
    return tuple(
        Layer(mixer=mixer, routed=has_experts, **sizes)
        for (mixer, has_experts), sizes in zip(kinds, weights, strict=True)
    )


def encoder_layers(facts: ModelFacts) -> int:
    """How many layers an encoder has that stands before the decoder."""
    counts = [
        group.count for group in loaded_groups(facts) if _is_of_encoder(group) and group.pattern.endswith("q.weight")
    ]
    return max(counts, default=0)


def _is_of_encoder(group: TensorGroup) -> bool:
    return "encoder." in group.pattern and group.role not in TOWERS


def _routed(facts: ModelFacts, layers: int) -> frozenset[int]:
    """Which layers have experts, as the numbers of their routers say; the last ones where they say nothing."""
    if facts.moe is None:
        return frozenset()
    routers = [group for group in loaded_groups(facts) if group.role == "router" and group.kind == "linear"]
    if not routers:
        return frozenset()
    most = max(routers, key=lambda group: group.count)
    numbers = frozenset(number for number, _ in most.numbers if number < layers)
    return numbers if len(numbers) == most.count else frozenset(range(max(0, layers - most.count), layers))


def _weights(facts: ModelFacts, layers: int, encoder: int) -> list[dict[str, int]]:
    """The elements of each layer."""
    made = [
        dict.fromkeys(("elements", "mlp_elements", "cast_elements", "mlp_cast_elements"), 0)
        for _ in range(encoder + layers)
    ]
    for group in loaded_groups(facts):
        if "*" not in group.pattern or group.role in TOWERS or not group.parameters:
            continue
        start, length = (0, encoder) if encoder and _is_of_encoder(group) else (encoder, layers)
        for at, number in _shares(group, length):
            for name in _counted(group):
                made[start + at][name] += group.parameters * number // group.count
    return made


def _counted(group: TensorGroup) -> list[str]:
    """In which of a layer's numbers the group is."""
    names = ["elements"] if converts(group) else []
    names += ["cast_elements"] if group.kind in _CAST_KINDS and group.role != "norm" else []
    return names + ([f"mlp_{name}" for name in names] if group.role in _MLP_ROLES else [])


def _shares(group: TensorGroup, layers: int) -> list[tuple[int, int]]:
    """How many of the group's tensors each layer has: by their numbers, or all alike."""
    inside = [(at, count) for at, count in group.numbers if at < layers]
    if sum(count for _, count in inside) == group.count:
        return inside
    return [(at, -(-group.count // layers)) for at in range(layers)] if layers else []
