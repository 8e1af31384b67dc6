"""One rank of tensor, sequence, pipeline and context parallel training: the part of the model that it has, as a model of its own.

Tensor and sequence parallel: Korthikanti et al. 2022, arXiv:2205.05198, section 4: matrices, heads and the vocabulary are divided by the ranks; what
lies between them (norms, dropout, inputs of matrices) is whole on each, and divided along the sequence with sequence parallel. Pipeline: Narayanan et al. 2021, arXiv:2104.04473,
section 2.2.1 (1F1B): a stage has its share of the layers, and the first one as many micro-batches on their way as there are stages. Context parallel: Liu et al. 2023, arXiv:2310.01889: each rank has its share of the sequence, and keys and
values of two others on their way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.facts.buffers import of_layers
from hubaudit.facts.loading import loaded_groups, stays_packed

if TYPE_CHECKING:
    from hubaudit.estimate.training.setting import Sharing
    from hubaudit.types import ModelFacts, Sourced, TensorGroup

SOURCES = {
    "tensor": "arXiv:2205.05198, section 4.2",
    "sequence": "arXiv:2205.05198, section 4.2.2",
    "pipeline": "arXiv:2104.04473, section 2.2.1 (1F1B)",
    "context": "arXiv:2310.01889, section 3",
}
_DIVIDED = frozenset({"attention", "mlp", "shared_expert", "expert", "embedding", "head"})
_READS_DIVIDED = ("o_proj", "out_proj", "down_proj", "c_proj", "dense", "dense_4h_to_h", "wo", "w2", "fc2")
_OUTSIDE = frozenset({"embedding", "head"})


def check_parallel(facts: ModelFacts, sharing: Sharing, kinds: frozenset[str], *, keeps_scores: bool) -> None:
    """Refuse what no source describes.

    Args:
        facts: the model.
        sharing: how it is shared.
        kinds: the rows of mixers.toml that its layers have.
        keeps_scores: attention by plain products.

    Raises:
        UsageError: in one line, why.
    """
    if sharing.tp == sharing.pp == sharing.cp == 1:
        if sharing.sequence_parallel:
            raise UsageError("sequence parallel needs tensor parallel", hint="--tp N")
        return
    if stays_packed(facts):
        raise UsageError("parallel training of quantized weights has no source", hint="--zero 3")
    if kinds and (sharing.tp > 1 or sharing.cp > 1):
        raise UsageError(
            f"tensor and context parallel training of {', '.join(sorted(kinds))} layers has no source",
            hint="--zero 3, or --pp",
        )
    if sharing.sequence_parallel and sharing.tp == 1:
        raise UsageError("sequence parallel needs tensor parallel", hint="--tp N")
    if sharing.cp > 1 and keeps_scores:
        raise UsageError("ring attention keeps no scores", hint="leave out --attention eager")
    for name in ("attention_heads", "kv_heads"):
        heads = getattr(facts, name).value or sharing.tp
        if heads % sharing.tp:
            raise UsageError(f"{heads} {name.replace('_', ' ')} are no multiple of --tp {sharing.tp}")
    if (facts.layers.value or sharing.pp) < sharing.pp:
        raise UsageError(f"fewer layers than --pp {sharing.pp}")


def rank_facts(facts: ModelFacts, sharing: Sharing, stage: int) -> ModelFacts:
    """The model as one rank of pipeline stage ``stage`` has it; stages are equal, the first of the rounded-up size."""
    if sharing.tp == sharing.pp == 1:
        return facts
    layers = facts.layers.value or sharing.pp
    held = -(-layers // sharing.pp)
    is_tied = not any(group.role == "head" for group in loaded_groups(facts))
    groups = []
    for group in facts.tensor_groups:
        mine = group if group.role in _OUTSIDE else _of_layers(group, layers, held)
        if group.role not in _OUTSIDE or _is_on(group, stage, sharing.pp, is_tied=is_tied):
            groups.append(_divided(mine, sharing.tp))
    moe = facts.moe
    if moe is not None:
        moe = replace(moe, expert_intermediate_size=_part(moe.expert_intermediate_size, sharing.tp))
    return replace(
        facts,
        tensor_groups=tuple(groups),
        built=(),
        layers=_set(facts.layers, held),
        buffers=of_layers(facts.buffers, _set(facts.layers, held)),
        layer_plan=None if facts.layer_plan is None else facts.layer_plan[:held],
        intermediate_size=_part(facts.intermediate_size, sharing.tp),
        attention_heads=_part(facts.attention_heads, sharing.tp),
        kv_heads=_part(facts.kv_heads, sharing.tp),
        vocab_size=_part(facts.vocab_size, sharing.tp),
        moe=moe,
    )


def in_flight(sharing: Sharing, stage: int, micro_batches: int) -> int:
    """Micro-batches whose activations a stage holds at once under 1F1B."""
    return min(sharing.pp - stage, micro_batches)


def _is_on(group: TensorGroup, stage: int, stages: int, *, is_tied: bool) -> bool:
    if group.role == "embedding":
        return stage == 0 or (is_tied and stage == stages - 1)
    return stage == stages - 1


def _of_layers(group: TensorGroup, layers: int, held: int) -> TensorGroup:
    if group.count < layers // 2 or held == layers:  # not of every layer: the final norm, a few dense layers
        return group
    count = -(-group.count * held // layers)
    return replace(_scaled(group, count, group.count), count=count)


def _divided(group: TensorGroup, ranks: int) -> TensorGroup:
    shape = group.logical_shape or group.shape
    if ranks == 1 or group.role not in _DIVIDED or not shape or group.kind == "norm":
        return group
    reads = group.pattern.rpartition(".")[0].endswith(_READS_DIVIDED)
    if reads and len(shape) == 1:
        return group  # a bias that is added once
    axis = len(shape) - 1 if reads else max(0, len(shape) - 2)
    mine = -(-shape[axis] // ranks)
    cut = (*shape[:axis], mine, *shape[axis + 1 :])
    return replace(_scaled(group, mine, shape[axis]), shape=cut, logical_shape=None)


def _scaled(group: TensorGroup, mine: int, whole: int) -> TensorGroup:
    if not whole:  # no elements, of which any part is none
        return group
    parameters = None if group.parameters is None else -(-group.parameters * mine // whole)
    return replace(group, parameters=parameters, stored_bytes=-(-group.stored_bytes * mine // whole))


def _part(fact: Sourced[int], ranks: int) -> Sourced[int]:
    return fact if fact.value is None or ranks == 1 else _set(fact, -(-fact.value // ranks))


def _set(fact: Sourced[int], value: int) -> Sourced[int]:
    return replace(fact, value=value, where=f"{fact.where}; one rank's part")
