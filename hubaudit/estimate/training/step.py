"""One training step, phase by phase: load, forward, loss, backward, optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.component import component, given
from hubaudit.estimate.overhead import cuda_context
from hubaudit.estimate.training.amounts import Amount
from hubaudit.estimate.training.moments import Moment, estimate_at_worst
from hubaudit.estimate.training.setting import TrainSetting, settle_training
from hubaudit.estimate.training.sharding import Shares, shared, shares_of
from hubaudit.estimate.training.stack import Stack, stack_of
from hubaudit.estimate.training.states import Standing, standing, update_temporaries
from hubaudit.estimate.training.tensors import elements_of
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
#: More tokens than this make the backward pass of an embedding sort them (torch 2.13.0 aten/src/ATen/native/cuda/Embedding.cu).
_SORTED_TOKENS = 3072


def estimate_training(facts: ModelFacts, workload: Workload) -> Estimate:
    """Memory of one process while it trains: the worst moment of a step, once the optimizer has its states.

    Raises:
        UsageError: the workload asks for something that does not exist.
    """
    setting = settle_training(facts, workload)
    held = standing(facts, setting)
    if held is None:
        reason = facts.parameters_reason or "no tensors are known"
        return estimate_at_worst(
            [Moment(phase="load", components=(cuda_context(),))],
            assumptions=setting.assumptions,
            omitted=(Omission(id="weights", reason=reason),),
        )
    stack = stack_of(facts, setting)
    shares = shares_of(setting.sharing)
    whole = list(moments_of(held, stack, setting))
    omitted = (Omission(id="activations", reason=stack),) if isinstance(stack, str) else ()
    said = (*setting.assumptions, *_said(stack), *_not_counted(setting), *_stages(whole, held, setting, shares))
    return estimate_at_worst(list(shared(whole, held, setting, shares)), assumptions=said, omitted=omitted)


def _not_counted(setting: TrainSetting) -> Iterator[str]:
    """What the activations of adapters lack, so that nobody takes the figure for more than it is."""
    if setting.adapters is None:
        return
    if setting.adapters.has_dropout:
        yield "masks and outputs of the adapters' dropout are not counted: the activations are a lower bound"
    if setting.adapters.variant == "dora":
        yield "what DoRA keeps for its magnitudes beside LoRA is not counted: the activations are a lower bound"


def _stages(whole: list[Moment], held: Standing, setting: TrainSetting, shares: Shares) -> Iterator[str]:
    """All stages side by side, where several processes share the run."""
    if shares.replicas > 1:
        totals = []
        for stage, name in enumerate(("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3 or FSDP")):
            other = replace(shares, stage=stage, offload=frozenset())
            most = max(moment.total_bytes for moment in shared(whole, held, setting, other))
            totals.append(f"{name} {format_bytes(most)}")
        yield f"each of {shares.replicas} GPUs, nothing offloaded: {', '.join(totals)}"
    if shares.offload:
        yield "what is offloaded takes as much host memory or disk, and time for the way there and back"


def _said(stack: Stack | str) -> Iterator[str]:
    if isinstance(stack, str):
        yield "not in the total: activations"
    elif stack.kernel == "math":
        yield "attention by plain products: the fused kernels do not take float32 with grouped heads, so that scores are kept"


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
        yield moment(grow.none(), kept + stack.around, Amount(), logits)
        if setting.loss in ("full", "held"):
            head = Amount.of(stack.flow.head, "tokens", "vocab_size")
            yield moment(grow.head(), kept + stack.around, head + stream + grow.cast_head())
    recomputed = stack.recomputed(setting)
    dequantized = Amount.of(2, "largest_matrix") if setting.is_prepared else Amount()
    yield moment(grow.head(), kept + recomputed, layer.mlp_temporary + dequantized)
    yield moment(grow.head(), kept + recomputed - layer.mlp, layer.attention_temporary + dequantized)
    yield moment(grow.layers(), stack.one_saved(setting), layer.mlp_temporary + dequantized)
    if stack.flow.is_trained:
        yield moment(grow.whole(), Amount(), stream + grow.embedding())


class _Gradients:
    """Gradients that exist at some point of the backward pass; all of them from its start where they are added up over batches."""

    def __init__(self, held: Standing, stack: Stack, setting: TrainSetting) -> None:
        self._held = held
        self._stack = stack
        self._adds_up = setting.grad_accum > 1 or not stack.flow.is_trained
        self._is_tied = not any(one.role == "head" and one.is_matrix for one in held.trained)

    def none(self) -> Component:
        """Before the backward pass has made any."""
        return self._of(0)

    def head(self) -> Component:
        """That of the head alone."""
        return self._of(self._stack.head_elements)

    def layers(self) -> Component:
        """All but the embedding's own."""
        return self._of(elements_of(self._held.trained) - (0 if self._is_tied else self._embedding_elements()))

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

    def _of(self, elements: int) -> Component:
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
