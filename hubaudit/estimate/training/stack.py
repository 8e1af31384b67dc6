"""All layers of a model together: what is kept of them, and what lies around them (final norm, rotary tables, casts of weights)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.estimate.component import Input, given
from hubaudit.estimate.training.activations import LayerMemory, layer_memory
from hubaudit.estimate.training.amounts import Amount, total
from hubaudit.estimate.training.attention import MATH, score_bytes
from hubaudit.estimate.training.block import Block, block_of, dimensions, kernel_of
from hubaudit.estimate.training.flow import Flow, flow_of
from hubaudit.estimate.training.kept_inputs import norm_saved
from hubaudit.estimate.training.layers import Layer, layers_of
from hubaudit.estimate.training.lora import adapted_outputs, targets_of
from hubaudit.estimate.training.losses import Loss, chunk_tokens, loss_of, predicts_tokens
from hubaudit.estimate.training.mixers import terms
from hubaudit.facts.loading import loaded_groups

if TYPE_CHECKING:
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.types import ModelFacts

_HALF = 2
_FLOAT = 4
_HIDDEN = "hidden_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Layers alike: ``name`` is the input that counts them, ``left`` the one that counts those whose backward pass is still to come."""

    name: str
    memory: LayerMemory

    @property
    def left(self) -> str:
        """The name under which :meth:`Stack.at` counts them."""
        return f"{self.name}_left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """``kinds`` are the kinds of layers, ``order`` which of them each layer is, from the first to the last. Amounts are over ``inputs``."""

    block: Block
    flow: Flow
    kernel: str
    inputs: dict[str, Input]
    kinds: tuple[Kind, ...]
    order: tuple[int, ...]
    layers: tuple[Layer, ...]
    around: Amount
    between: Amount
    unkept: Amount
    loss: Loss | None
    cast_elements: int
    head_elements: int
    largest_matrix: int

    def kept(self, setting: TrainSetting) -> Amount:
        """What the layers keep until the backward pass, with the checkpointing that was asked for."""
        return self._whole(setting).times(setting.in_flight)

    def cached(self, setting: TrainSetting) -> Amount:
        """What the cache of keys and values holds beside that, as long as the outputs live; checkpointing turns it off."""
        if setting.checkpointing == "full":
            return Amount()
        return total(kind.memory.cached.times(1, kind.name) for kind in self.kinds)

    def left(self, setting: TrainSetting) -> Amount:
        """What is kept when the backward pass has come down to a layer, over the inputs of :meth:`at`: that layer and all before it.

        With checkpointing that is what is computed again of the layer's segment, beside the segments' inputs; with a pipeline, all of the other
        micro-batches.
        """
        others = self._whole(setting).times(setting.in_flight - 1)
        if setting.checkpointing == "full":
            again = total(kind.memory.saved.times(1, kind.left) for kind in self.kinds)
            return others + self._boundary().times(1, "checkpoints_left") + again
        own = total(self._saved(kind.memory, setting).times(1, kind.left) for kind in self.kinds)
        return others + own - self.unkept

    def adapting(self, setting: TrainSetting) -> Amount:
        """The forward pass when the last layer's MLP adds adapters to what the base makes, against what is kept in the end."""
        memory = self.kinds[self.order[-1]].memory
        if self.flow.is_trained:
            return Amount()
        if setting.checkpointing == "full":
            return memory.saved - memory.mlp + memory.adapting
        return memory.adapting - memory.mlp

    def recomputed(self, setting: TrainSetting) -> Amount:
        """The scores of one layer, which selective checkpointing computes again."""
        return scores(self.block, self.flow, self.kernel) if setting.checkpointing == "selective" else Amount()

    def at(self, layer: int, setting: TrainSetting) -> dict[str, Input]:
        """The inputs, with the numbers of layers of each kind that are left when the backward pass is at ``layer``."""
        segment = layer - layer % setting.checkpoint_every
        first = segment if setting.checkpointing == "full" else 0
        inside = self.order[first : layer + 1]
        where = f"layers {first} to {layer} in their order"
        counts = {kind.left: given(inside.count(at), where) for at, kind in enumerate(self.kinds)}
        counts["checkpoints_left"] = given(segment // setting.checkpoint_every + 1, "segments up to this layer")
        return self.inputs | counts

    def turning_points(self, setting: TrainSetting) -> list[int]:
        """The layers at which the backward pass may be at its worst: of each kind the last and the first, and the ends of segments."""
        found = {len(self.order) - 1, 0}
        for at in range(len(self.kinds)):
            alike = [layer for layer, kind in enumerate(self.order) if kind == at]
            found |= {alike[0], alike[-1]}
        if setting.checkpointing == "full" and setting.checkpoint_every > 1:
            ends = [min(at + setting.checkpoint_every, len(self.order)) - 1 for at in sorted(found)]
            found |= {end - end % setting.checkpoint_every + setting.checkpoint_every - 1 for end in ends}
        return sorted((at for at in found if at < len(self.order)), reverse=True)

    def _whole(self, setting: TrainSetting) -> Amount:
        if setting.checkpointing == "full":
            return self._boundary().times(1, "checkpoints")
        return total(self._saved(kind.memory, setting).times(1, kind.name) for kind in self.kinds) - self.unkept

    def _boundary(self) -> Amount:
        return self.kinds[0].memory.boundary

    def _saved(self, memory: LayerMemory, setting: TrainSetting) -> Amount:
        return (
            memory.saved - scores(self.block, self.flow, self.kernel)
            if setting.checkpointing == "selective"
            else memory.saved
        )


def scores(block: Block, flow: Flow, kernel: str) -> Amount:
    """What attention keeps for every pair of tokens: nothing in flash attention, which is what selective checkpointing then saves."""
    if kernel in ("flash", "efficient"):
        return Amount()
    pair = _FLOAT if kernel in MATH else score_bytes(block, flow)
    return Amount.of(pair, "tokens", "sequence_tokens", "attention_heads")


def stack_of(facts: ModelFacts, setting: TrainSetting) -> Stack | str:
    """The model's layers, or why they are not modelled."""
    block = block_of(facts)
    if isinstance(block, str):
        return block
    if setting.checkpointing == "full":  # transformers turns the cache off then
        block = replace(block, cached=False)
    flow = replace(flow_of(setting), mask=int(block.dropouts > 0), score_mask=int(block.attention_dropout))
    inputs = dimensions(facts, setting, block)
    if isinstance(inputs, str):
        return inputs
    if inputs["layers"].value == 0:
        return f"a model of no layers ({inputs['layers'].where})"
    kernel = kernel_of(block, flow, setting, inputs)
    inputs["checkpoint_every"] = given(setting.checkpoint_every, "workload")
    layers = layers_of(facts, block)
    inputs["checkpoints"] = given(-(-len(layers) // setting.checkpoint_every), "layers ÷ checkpoint_every, rounded up")
    inputs["chunk_tokens"] = chunk_tokens(setting.loss, inputs)
    outputs, widest = adapted_outputs(facts, setting)
    inputs["adapted_outputs"] = given(outputs, "rows of all adapted matrices ÷ layers")
    inputs["widest_output"] = given(widest, "rows of the widest adapted matrix")
    inputs["largest_matrix"] = given(_largest_matrix(facts), "shapes of the linear layers")
    kinds = list(dict.fromkeys(layer.kind for layer in layers))
    return Stack(
        block=block,
        flow=flow,
        kernel=kernel,
        inputs=inputs,
        kinds=tuple(_kind(facts, setting, one, layers, (block, flow, kernel), inputs) for one in kinds),
        order=tuple(kinds.index(layer.kind) for layer in layers),
        layers=layers,
        around=_around(block, flow),
        between=norm_saved(block, flow) + terms(block.between, flow) if block.between else Amount(),
        unkept=_unkept(block, flow, setting),
        loss=loss_of(setting.loss, block, flow, trains_head=flow.is_trained) if predicts_tokens(facts) else None,
        cast_elements=_cast_elements(facts, setting),
        head_elements=_head_elements(facts),
        largest_matrix=inputs["largest_matrix"].value,
    )


def _kind(
    facts: ModelFacts,
    setting: TrainSetting,
    kind: tuple[str, bool],
    layers: tuple[Layer, ...],
    computing: tuple[Block, Flow, str],
    inputs: dict[str, Input],
) -> Kind:
    """Layers alike, which are then counted among the inputs."""
    mixer, routed = kind
    count = sum(layer.kind == kind for layer in layers)
    name = "layers" if count == len(layers) else f"{mixer or 'attention'}_{'routed' if routed else 'dense'}_layers"
    inputs.setdefault(name, given(count, "layer plan and shapes of the experts"))
    block, flow, kernel = computing
    has_dense = not routed or _has_shared_mlp(facts)
    targets = targets_of(facts, setting)
    memory = layer_memory(block, flow, kernel, targets, routed=routed, dense=has_dense, mixer=mixer or None)
    if setting.sharing.cp > 1:  # keys and values of two other ranks, on their way
        ring = Amount.of(4 * flow.inner, "tokens", "key_size")
        memory = replace(memory, attention_temporary=memory.attention_temporary + ring)
    return Kind(name=name, memory=memory.along_sequence() if setting.sharing.sequence_parallel else memory)


def _has_shared_mlp(facts: ModelFacts) -> bool:
    return any(group.role == "shared_expert" for group in loaded_groups(facts))


def _unkept(block: Block, flow: Flow, setting: TrainSetting) -> Amount:
    """What the first norm of an encoder or decoder keeps elsewhere and does not here: nothing below an adapter needs a gradient.

    With checkpointing the inputs are made to require one (PEFT's ``enable_input_require_grads``).
    """
    if flow.is_trained or setting.checkpointing == "full" or block.post_norm:
        return Amount()
    return norm_saved(block, flow).times(block.final_norms)


def _around(block: Block, flow: Flow) -> Amount:
    """The final norm, what the head keeps of it, and the tables of rotary positions."""
    made = norm_saved(block, flow).times(block.final_norms) + terms(block.around, flow)
    if flow.is_trained:
        made += terms(block.around_trained, flow)
        made += Amount.of(_HALF if flow.casts else flow.stream, "tokens", _HIDDEN)
    if block.rope != "none":
        made += Amount.of(2 * flow.stream, "sequence_tokens", "head_dim")
    return made


def _head_elements(facts: ModelFacts) -> int:
    """Elements of the matrix that makes the logits: the head, or the embedding that it is tied to."""
    groups = loaded_groups(facts)
    vocab = facts.vocab_size.value
    heads = [group for group in groups if group.role == "head" and group.kind == "linear" and vocab in group.shape]
    found = heads or [group for group in groups if group.role == "embedding" and vocab in group.shape]
    return max((group.parameters or 0 for group in found), default=0)


def _cast_elements(facts: ModelFacts, setting: TrainSetting) -> int:
    """Weights that autocast makes 16-bit copies of: matrices and their biases in float32, the head among them."""
    if not setting.recipe.autocast:
        return 0
    if setting.is_prepared:
        return _head_elements(facts)
    cast = [
        group
        for group in loaded_groups(facts)
        if group.kind in ("linear", "bias", "experts", "conv1d") and group.role != "norm"
    ]
    own_head = any(
        group.role == "head" and group.kind == "linear" and facts.vocab_size.value in group.shape for group in cast
    )
    return sum(group.parameters or 0 for group in cast) + (0 if own_head else _head_elements(facts))


def _largest_matrix(facts: ModelFacts) -> int:
    sizes = [
        (group.parameters or 0) // group.count for group in loaded_groups(facts) if group.role in ("attention", "mlp")
    ]
    return max(sizes, default=0)
