"""One training step, phase by phase: load, forward, loss, backward, optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.estimate.moments import Moment, estimate_at_worst, worst
from hubaudit.estimate.overhead import cuda_context
from hubaudit.estimate.training.attention import MATH
from hubaudit.estimate.training.backward import backward_moments
from hubaudit.estimate.training.block import block_of
from hubaudit.estimate.training.fsdp import cut, with_shards_alone
from hubaudit.estimate.training.parallel import SOURCES as PARALLEL
from hubaudit.estimate.training.parallel import check_parallel, in_flight, rank_facts
from hubaudit.estimate.training.parts import activations, casts, part, workspace
from hubaudit.estimate.training.remainders import remainders, with_remainders
from hubaudit.estimate.training.setting import Sharing, TrainSetting, settle_training
from hubaudit.estimate.training.sharding import Shares, shared, shares_of
from hubaudit.estimate.training.stack import Stack, stack_of
from hubaudit.estimate.training.stages import stage_shares
from hubaudit.estimate.training.states import Standing, standing, takes_all, update_temporaries
from hubaudit.estimate.training.tensors import elements_of, whole_model
from hubaudit.estimate.training.textbook import SOURCE as TEXTBOOK
from hubaudit.estimate.training.textbook import textbook_activations
from hubaudit.facts.loading import unread_packing
from hubaudit.types import Estimate, Omission
from hubaudit.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Component, ModelFacts, Workload

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

    beyond = remainders(facts, held, setting)

    def moments_under(other: Shares) -> list[Moment]:
        made = _moments_under(facts, held, stack, setting, other)
        return [with_remainders(moment, held, beyond) for moment in made] if other.replicas == 1 else made

    unknown = (Omission(id="activations", reason=stack),) if isinstance(stack, str) else ()
    said = (*setting.assumptions, *_said(stack, setting), *_untouched(facts, setting), *_offloaded(shares))
    moments = moments_under(shares)
    said = (*said, *_ranks(sharing, stage), *_gradients_at(worst(moments), moments[-1]))
    made = estimate_at_worst(moments, assumptions=said, omitted=(*unknown, *held.buffers.omitted))
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


def _untouched(facts: ModelFacts, setting: TrainSetting) -> Iterator[str]:
    """What gets no gradient, as nothing goes through it."""
    towers = [one for one in whole_model(facts) if one.in_tower]
    if towers and not takes_all(facts, setting):
        count = format_count(elements_of(tuple(towers)))
        yield f"text alone: the {count} parameters that images or sound would go through get no gradients, and so no optimizer states"


def _gradients_at(peak: Moment, update: Moment) -> Iterator[str]:
    """Where the gradients are that one looks for among the peak's parts; the optimizer's update is when all exist."""
    now, all_of_them = (
        sum(part.bytes for part in one.components if part.category == "Gradient") for one in (peak, update)
    )
    if now < all_of_them:
        part_of_peak = f"{format_bytes(now)} of them" if now else "none of them"
        yield f"gradients take {format_bytes(all_of_them)} once all are there; at the peak there is {part_of_peak}, as backward makes them while it frees activations"


def _said(stack: Stack | str, setting: TrainSetting) -> Iterator[str]:
    if isinstance(stack, str):
        yield "not in the total: activations"
        return
    if stack.inputs["attention_heads"].value:
        yield f"the textbook's activations, (34·s·b·h + 5·b·s²·a)·l, would be {format_bytes(_textbook(stack, setting))} ({TEXTBOOK})"
    if stack.kernel in MATH:
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
    lasting = (*held.loaded, held.states)
    yield Moment(phase="load", components=(*held.loaded, cuda_context()))
    if not isinstance(stack, str):
        before = (*lasting, *((held.gradients,) if setting.grad_accum > 1 else ()))
        yield from _forward(before, stack, setting)
        yield from backward_moments(lasting, held, stack, setting)
    update = update_temporaries(held, setting)
    extra = () if update is None else (update,)
    yield Moment(phase="optimizer", components=(*lasting, held.gradients, *extra, workspace(2), cuda_context()))


def _forward(before: tuple[Component, ...], stack: Stack, setting: TrainSetting) -> Iterator[Moment]:
    beside = (*casts(stack.cast_elements), workspace(1), cuda_context())
    kept = activations(stack.kept(setting) + stack.cached(setting) + stack.around, stack.inputs)
    yield Moment(phase="forward", components=(*before, kept, *beside))
    if not stack.flow.is_trained:
        adapting = stack.kept(setting) + stack.cached(setting) + stack.adapting(setting)
        yield Moment(phase="forward", components=(*before, activations(adapting, stack.inputs), *beside))
    if stack.loss is not None:
        logits = part("logits", "Activation", stack.loss.forward, stack.inputs, stack.loss.source)
        yield Moment(phase="loss", components=(*before, kept, logits, *beside))
