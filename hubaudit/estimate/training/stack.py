"""All layers of a model together: what is kept of them, and what lies around them (final norm, rotary tables, casts of weights)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.estimate.component import Input, given
from hubaudit.estimate.training.activations import LayerMemory, layer_memory, norm_saved
from hubaudit.estimate.training.amounts import Amount, largest, total
from hubaudit.estimate.training.block import Block, Flow, block_of, dimensions, flow_of, kernel_of
from hubaudit.estimate.training.lora import adapted_outputs, targets_of
from hubaudit.estimate.training.losses import Loss, chunk_tokens, loss_of
from hubaudit.estimate.training.mixers import terms
from hubaudit.facts.loading import loaded_groups

if TYPE_CHECKING:
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.types import ModelFacts

_HALF = 2
_FLOAT = 4
_HIDDEN = "hidden_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """``layers`` are one memory for each kind of layer, with the name of the input that counts them. Amounts are over ``inputs``."""

    block: Block
    flow: Flow
    kernel: str
    inputs: dict[str, Input]
    layers: tuple[tuple[str, LayerMemory], ...]
    around: Amount
    loss: Loss | None
    cast_elements: int
    head_elements: int
    largest_matrix: int

    def kept(self, setting: TrainSetting) -> Amount:
        """What the layers keep until the backward pass, with the checkpointing that was asked for."""
        if setting.checkpointing == "full":
            boundary = self.layers[0][1].boundary.times(1, "checkpoints")
            return boundary.times(setting.in_flight)
        return total(self._saved(memory, setting).times(setting.in_flight, count) for count, memory in self.layers)

    def recomputed(self, setting: TrainSetting) -> Amount:
        """What is computed again at once in the backward pass."""
        if setting.checkpointing == "full":
            return self.fullest().saved.times(1, "checkpoint_every")
        return scores(self.block, self.flow, self.kernel) if setting.checkpointing == "selective" else Amount()

    def one_saved(self, setting: TrainSetting) -> Amount:
        """What a single layer has, the last that backward reaches."""
        return self.fullest().saved if setting.checkpointing == "full" else self._saved(self.fullest(), setting)

    def fullest(self) -> LayerMemory:
        """The kind of layer that keeps most."""
        best = largest([memory.saved for _, memory in self.layers], self.inputs)
        return next(memory for _, memory in self.layers if memory.saved is best)

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
    is_wide = kernel == "math" or not block.softmax_is_native
    softmax = _FLOAT if is_wide else flow.inner
    if kernel == "eager" and is_wide and flow.inner < _FLOAT:
        softmax += flow.inner
    return Amount.of(softmax, "tokens", "sequence_tokens", "attention_heads")


def stack_of(facts: ModelFacts, setting: TrainSetting) -> Stack | str:
    """The model's layers, or why they are not modelled."""
    block = block_of(facts)
    if isinstance(block, str):
        return block
    flow = flow_of(setting)
    inputs = dimensions(facts, setting, block)
    if isinstance(inputs, str):
        return inputs
    if inputs["layers"].value == 0:
        return f"a model of no layers ({inputs['layers'].where})"
    kernel = kernel_of(block, flow, setting, inputs)
    inputs["checkpoint_every"] = given(setting.checkpoint_every, "workload")
    mixed = _mixed(facts, block)
    inputs["checkpoints"] = given(
        -(-sum(mixed.values()) // setting.checkpoint_every), "layers ÷ checkpoint_every, rounded up"
    )
    inputs["chunk_tokens"] = chunk_tokens(setting.loss, inputs)
    outputs, widest = adapted_outputs(facts, setting)
    inputs["adapted_outputs"] = given(outputs, "rows of all adapted matrices ÷ layers")
    inputs["widest_output"] = given(widest, "rows of the widest adapted matrix")
    inputs["largest_matrix"] = given(_largest_matrix(facts), "shapes of the linear layers")
    targets = targets_of(facts, setting)
    routed = _routed_layers(facts)
    layers = []
    for mixer, number in mixed.items():
        for kind, count, has_experts in _kinds(routed, number):
            name = "layers" if count == inputs["layers"].value else f"{mixer or 'attention'}_{kind}"
            inputs.setdefault(name, given(count, "layer plan and shapes of the experts"))
            has_dense = not has_experts or _has_shared_mlp(facts)
            memory = layer_memory(
                block, flow, kernel, targets, routed=has_experts, dense=has_dense, mixer=mixer or None
            )
            if setting.sharing.cp > 1:  # keys and values of two other ranks, on their way
                ring = Amount.of(4 * flow.inner, "tokens", "key_size")
                memory = replace(memory, attention_temporary=memory.attention_temporary + ring)
            layers.append((name, memory.along_sequence() if setting.sharing.sequence_parallel else memory))
    return Stack(
        block=block,
        flow=flow,
        kernel=kernel,
        inputs=inputs,
        layers=tuple(layers),
        around=_around(block, flow),
        loss=loss_of(setting.loss, block, flow, trains_head=flow.is_trained) if _has_logits(facts) else None,
        cast_elements=_cast_elements(facts, setting),
        head_elements=_head_elements(facts),
        largest_matrix=inputs["largest_matrix"].value,
    )


def _mixed(facts: ModelFacts, block: Block) -> dict[str, int]:
    """How many layers have which mixer; plain attention is the empty name."""
    found: dict[str, int] = {}
    for layer in facts.layer_plan or ():
        mixer = block.mixers.get(layer.kind, "")
        found[mixer] = found.get(mixer, 0) + 1
    if block.encoder_mixer is not None:
        found[block.encoder_mixer] = _encoder_layers(facts)
    return found or {"": facts.layers.value or 0}


def _encoder_layers(facts: ModelFacts) -> int:
    counts = [
        group.count
        for group in loaded_groups(facts)
        if "encoder." in group.pattern and group.pattern.endswith("q.weight")
    ]
    return max(counts, default=0)


def _kinds(routed: int, layers: int) -> list[tuple[str, int, bool]]:
    if not routed:
        return [("layers", layers, False)]
    if routed >= layers:
        return [("layers", layers, True)]
    return [("dense_layers", layers - routed, False), ("routed_layers", routed, True)]


def _routed_layers(facts: ModelFacts) -> int:
    routers = [group.count for group in loaded_groups(facts) if group.role == "router" and group.kind == "linear"]
    return max(routers, default=0) if facts.moe is not None else 0


def _has_shared_mlp(facts: ModelFacts) -> bool:
    return any(group.role == "shared_expert" for group in loaded_groups(facts))


def _has_logits(facts: ModelFacts) -> bool:
    """Whether the model ends in a distribution over its vocabulary."""
    name = facts.architecture or ""
    return facts.family == "decoder" or name.endswith(
        ("ForMaskedLM", "LMHeadModel", "ForPreTraining", "ForConditionalGeneration")
    )


def _around(block: Block, flow: Flow) -> Amount:
    """The final norm, what the head keeps of it, and the tables of rotary positions."""
    made = norm_saved(block, flow) + terms(block.around, flow)
    if flow.is_trained:
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
    own_head = any(group.role == "head" and facts.vocab_size.value in group.shape for group in cast)
    return sum(group.parameters or 0 for group in cast) + (0 if own_head else _head_elements(facts))


def _largest_matrix(facts: ModelFacts) -> int:
    sizes = [
        (group.parameters or 0) // group.count for group in loaded_groups(facts) if group.role in ("attention", "mlp")
    ]
    return max(sizes, default=0)
