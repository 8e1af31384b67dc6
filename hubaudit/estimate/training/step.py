"""One training step, phase by phase: load, forward, loss, backward, optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.component import component, given
from hubaudit.estimate.moments import Moment, estimate_at_worst
from hubaudit.estimate.overhead import cuda_context
from hubaudit.estimate.training.amounts import Amount
from hubaudit.estimate.training.block import block_of
from hubaudit.estimate.training.fsdp import cut, with_shards_alone
from hubaudit.estimate.training.parallel import SOURCES as PARALLEL
from hubaudit.estimate.training.parallel import check_parallel, in_flight, rank_facts
from hubaudit.estimate.training.setting import Sharing, TrainSetting, settle_training
from hubaudit.estimate.training.sharding import Shares, shared, shares_of
from hubaudit.estimate.training.stack import Stack, stack_of
from hubaudit.estimate.training.stages import stage_shares
from hubaudit.estimate.training.states import Standing, standing, update_temporaries
from hubaudit.estimate.training.tensors import elements_of
from hubaudit.estimate.training.textbook import SOURCE as TEXTBOOK
from hubaudit.estimate.training.textbook import textbook_activations
from hubaudit.facts.loading import unread_packing
from hubaudit.types import Estimate, Omission
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Category, Component, ModelFacts, Workload

_TRACED = (
    "storages that autograd keeps in the model code of transformers 5.23.0, operation by operation; equal to storage-lifetime traces of every "
    "type in blocks.toml"
)
_BAND_PERCENT = (2, 2)
#: What a layer's backward pass comes to before attention.
_MLP_ROLES = frozenset({"mlp", "expert", "shared_expert", "router"})
#: More tokens than this make the backward pass of an embedding sort them (torch 2.13.0 aten/src/ATen/native/cuda/Embedding.cu).
_SORTED_TOKENS = 3072
#: What cannot be told of a step where the weights are not known.
_OF_THE_WEIGHTS = ("weights", "gradients", "optimizer", "activations")


def estimate_training(facts: ModelFacts, workload: Workload) -> Estimate:
    """Memory of one process while it trains: the worst moment of a step, once the optimizer has its states.

    Of a pipeline's stages it is the fullest.

    Raises:
        UsageError: the workload asks for something that does not exist.
    """
    setting = settle_training(facts, workload)
    block = block_of(facts)
    mixers = frozenset() if isinstance(block, str) else frozenset(block.mixers.values())
    check_parallel(facts, setting.sharing, mixers, keeps_scores=setting.attention == "eager")
    made = [_of_stage(facts, setting, stage) for stage in sorted({0, setting.sharing.pp - 1})]
    return max(made, key=lambda one: one.total_bytes)


def _of_stage(facts: ModelFacts, setting: TrainSetting, stage: int) -> Estimate:
    """One rank of one stage of a pipeline, the whole model where there is no pipeline."""
    sharing = setting.sharing
    facts = rank_facts(facts, sharing, stage)
    setting = replace(setting, in_flight=in_flight(sharing, stage, setting.grad_accum))
    unread = unread_packing(facts)
    held = None if unread is not None else standing(facts, setting)
    if held is None:
        reason = unread or facts.parameters_reason or "no tensors are known"
        return estimate_at_worst(
            [Moment(phase="load", components=(cuda_context(),))],
            assumptions=(*setting.assumptions, f"not in the total: {', '.join(_OF_THE_WEIGHTS)}"),
            omitted=tuple(
                Omission(id=id, reason=reason if id == "weights" else f"the weights are not known: {reason}")
                for id in _OF_THE_WEIGHTS
            ),
        )
    stack = stack_of(facts, setting)
    if isinstance(stack, Stack) and stage < sharing.pp - 1:
        stack = replace(stack, loss=None)
    shares = shares_of(sharing)

    def moments_under(other: Shares) -> list[Moment]:
        return _moments_under(facts, held, stack, setting, other)

    omitted = (Omission(id="activations", reason=stack),) if isinstance(stack, str) else ()
    said = (*setting.assumptions, *_said(stack, setting), *_offloaded(shares))
    made = estimate_at_worst(moments_under(shares), assumptions=(*said, *_ranks(sharing, stage)), omitted=omitted)
    return replace(made, stages=tuple(stage_shares(shares, moments_under)))


def _moments_under(
    facts: ModelFacts, held: Standing, stack: Stack | str, setting: TrainSetting, shares: Shares
) -> list[Moment]:
    """All moments of a step as one process has them."""
    if shares.fsdp is None or shares.replicas == 1:
        return list(shared(list(moments_of(held, stack, setting)), held, setting, shares))
    alone = standing(facts, with_shards_alone(setting)) or held
    by_fsdp = cut(facts, alone, shares.fsdp, shares.replicas)
    return list(shared(list(moments_of(alone, stack, setting)), alone, setting, shares, by_fsdp))


def _ranks(sharing: Sharing, stage: int) -> Iterator[str]:
    """What parallel training takes for granted, with its source."""
    if sharing.tp > 1:
        what = "matrices, heads and vocabulary are divided, and all between them with sequence parallel"
        yield f"{sharing.tp} tensor-parallel ranks: {what} ({PARALLEL['tensor']})"
    if sharing.cp > 1:
        yield f"{sharing.cp} context-parallel ranks: each has its part of the sequence, keys and values go round ({PARALLEL['context']})"
    if sharing.pp > 1:
        where = "first" if stage == 0 else "last"
        yield f"{sharing.pp} pipeline stages under 1F1B, micro-batches are those of --grad-accum; the {where} stage is the fullest ({PARALLEL['pipeline']})"


def _offloaded(shares: Shares) -> Iterator[str]:
    if shares.offload:
        yield "what is offloaded takes as much host memory or disk, and time for the way there and back"


def _said(stack: Stack | str, setting: TrainSetting) -> Iterator[str]:
    if isinstance(stack, str):
        yield "not in the total: activations"
        return
    if stack.inputs["attention_heads"].value:
        yield f"the textbook's activations, (34·s·b·h + 5·b·s²·a)·l, would be {format_bytes(_textbook(stack, setting))} ({TEXTBOOK})"
    if stack.kernel == "math":
        yield "attention by plain products: the fused kernels do not take float32 with grouped heads, so that scores are kept"


def _textbook(stack: Stack, setting: TrainSetting) -> int:
    sharing = setting.sharing
    return textbook_activations(
        sequence=stack.inputs["sequence_tokens"].value,
        batch=setting.batch_size.value,
        hidden=stack.inputs["hidden_size"].value,
        heads=stack.inputs["attention_heads"].value * sharing.tp,
        layers=stack.inputs["layers"].value * setting.in_flight,
        tensor_parallel=sharing.tp,
        sequence_parallel=sharing.sequence_parallel,
    )


def moments_of(held: Standing, stack: Stack | str, setting: TrainSetting) -> Iterator[Moment]:
    """Every moment that may be the worst, in the order of a step."""
    lasting = (*held.parameters, held.states)
    yield Moment(phase="load", components=(*held.parameters, cuda_context()))
    if not isinstance(stack, str):
        before = (*lasting, *((held.gradients,) if setting.grad_accum > 1 else ()))
        yield from _forward(before, stack, setting)
        yield from _backward(lasting, held, stack, setting)
    update = update_temporaries(held, setting)
    extra = () if update is None else (update,)
    yield Moment(phase="optimizer", components=(*lasting, held.gradients, *extra, _workspace(2), cuda_context()))


def _forward(before: tuple[Component, ...], stack: Stack, setting: TrainSetting) -> Iterator[Moment]:
    beside = (*_casts(stack, whole=True), _workspace(1), cuda_context())
    activations = _activations(stack, stack.kept(setting) + stack.around)
    yield Moment(phase="forward", components=(*before, activations, *beside))
    if stack.loss is not None:
        logits = _part("logits", "Activation", stack, stack.loss.forward, stack.loss.source)
        yield Moment(phase="loss", components=(*before, activations, logits, *beside))


def _backward(lasting: tuple[Component, ...], held: Standing, stack: Stack, setting: TrainSetting) -> Iterator[Moment]:
    """The moments of a backward pass that may be its worst.

    Where the loss begins it, at the head, in the last layer (all is still kept), in the first (all gradients are there), in the embedding.
    """
    beside = (*_casts(stack, whole=setting.checkpointing != "full"), _workspace(2), cuda_context())
    kept = stack.kept(setting)
    layer = stack.fullest()
    width = stack.flow.stream
    stream = Amount.of(width, "tokens", "hidden_size")
    grow = _Gradients(held, stack, setting)

    def moment(gradients: Component, activations: Amount, temporary: Amount, *others: Component) -> Moment:
        parts = (_activations(stack, activations), _part("backward", "Workspace", stack, temporary, _TRACED), *others)
        return Moment(phase="backward", components=(*lasting, gradients, *parts, *beside))

    if stack.loss is not None:
        logits = _part("logits", "Activation", stack, stack.loss.backward, stack.loss.source)
        yield moment(grow.of(0), kept + stack.around, Amount(), logits)
        if setting.loss in ("full", "held"):
            head = Amount.of(stack.flow.head, "tokens", "vocab_size")
            yield moment(grow.of(grow.head_elements), kept + stack.around, head + stream + grow.cast_head())
    recomputed = stack.recomputed(setting)
    dequantized = Amount.of(2, "largest_matrix") if setting.is_prepared else Amount()
    for whole, made in ((kept + recomputed, grow.head_elements), (stack.one_saved(setting), grow.upper_elements)):
        yield moment(grow.of(made), whole, layer.mlp_temporary + dequantized)
        after = grow.of(made + grow.of_one_layer(_MLP_ROLES))
        yield moment(after, whole - layer.mlp, layer.mlp_temporary + stream.times(2) + dequantized)
        yield moment(after, whole - layer.mlp, layer.attention_temporary + dequantized)
    if stack.flow.is_trained:
        yield moment(grow.whole(), Amount(), stream + grow.embedding())


class _Gradients:
    """Gradients that exist at some point of the backward pass; all of them from its start where they are added up over batches."""

    def __init__(self, held: Standing, stack: Stack, setting: TrainSetting) -> None:
        self._held = held
        self._stack = stack
        self._adds_up = setting.grad_accum > 1 or not stack.flow.is_trained
        self._is_tied = not any(one.role == "head" and one.is_matrix for one in held.trained)

    @property
    def head_elements(self) -> int:
        """Those of the head alone."""
        return min(self._stack.head_elements, elements_of(self._held.trained))

    @property
    def upper_elements(self) -> int:
        """All but the embedding's own and those of the first layer, which backward reaches last."""
        below = (0 if self._is_tied else self._embedding_elements()) + self.of_one_layer(None)
        return max(0, elements_of(self._held.trained) - below)

    def of_one_layer(self, roles: frozenset[str] | None) -> int:
        """Elements that one layer trains: of these roles, or all."""
        layers = self._stack.inputs["layers"].value
        inner = (one for one in self._held.trained if one.role in roles) if roles else self._held.trained
        found = sum(one.elements * one.count for one in inner if one.role not in ("embedding", "head"))
        return found // max(1, layers)

    def whole(self) -> Component:
        """All of them."""
        return self._held.gradients

    def cast_head(self) -> Amount:
        """Under autocast the head's gradient is made in 16 bit first."""
        return (
            Amount({("vocab_size", "hidden_size"): 2})
            if self._stack.flow.casts and self._stack.flow.is_trained
            else Amount()
        )

    def embedding(self) -> Amount:
        """The embedding's gradient beside the head's where they are one matrix, and what sorts many tokens."""
        made = Amount()
        if self._is_tied:
            made += Amount.of(self._held.gradient_bits // 8, "vocab_size", "hidden_size")
        tokens, vocab = self._stack.inputs["tokens"].value, self._stack.inputs["vocab_size"].value
        if tokens > _SORTED_TOKENS:
            made += Amount.of(4 * (tokens // 10 + min(tokens, vocab)), "hidden_size") + Amount.of(64, "tokens")
        return made

    def _embedding_elements(self) -> int:
        return sum(one.elements * one.count for one in self._held.trained if one.role == "embedding")

    def of(self, elements: int) -> Component:
        """Gradients of so many elements."""
        if self._adds_up:
            return self._held.gradients
        inputs = {
            "elements": given(elements, "shapes of what the backward pass has reached"),
            "gradient_bits": given(self._held.gradient_bits, "the recipe"),
        }
        source = "gradients come into being from the head downwards"
        return component(
            "gradients", "Gradient", "elements * gradient_bits // 8", inputs, exactness="formula", source=source
        )


def _casts(stack: Stack, *, whole: bool) -> tuple[Component, ...]:
    """Casts of weights that autocast keeps: all of them until the forward pass ends, and with checkpointing only the head's after it."""
    elements = stack.cast_elements if whole else min(stack.cast_elements, stack.head_elements)
    if not elements:
        return ()
    inputs = {"cast_elements": given(elements, "matrices of the model")}
    source = "torch 2.13.0 ATen/autocast_mode.cpp: casts of leaves are cached until autocast ends, and what autograd kept lives until its use"
    return (component("weight_casts", "Workspace", "2 * cast_elements", inputs, exactness="formula", source=source),)


def _activations(stack: Stack, amount: Amount) -> Component:
    return _part("activations", "Activation", stack, amount, _TRACED)


def _part(name: str, category: Category, stack: Stack, amount: Amount, source: str) -> Component:
    return component(
        name, category, amount.formula(), stack.inputs, exactness="formula", source=source, band_percent=_BAND_PERCENT
    )


def _workspace(handles: int) -> Component:
    """Workspaces of cuBLAS: one for each handle, and the thread of the backward pass has its own."""
    row = table("overheads.toml")["cublas_workspace"]
    inputs = {
        "handles": given(handles, "one a thread"),
        "measured_bytes": given(row["bytes"], "table:overheads.toml#cublas_workspace"),
    }
    made = component(
        "workspace", "Workspace", "handles * measured_bytes", inputs, exactness="fitted", source=row["source"]
    )
    return replace(made, low_bytes=row["low_bytes"] * handles, high_bytes=row["high_bytes"] * handles)
