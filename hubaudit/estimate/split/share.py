"""The facts of one device's share of a model: its layers, its part of each tensor, its heads."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.split.layout import TABLE, Place, Split, SplitError, experts_of, rules_of, stage_layers
from hubaudit.estimate.split.rules import (
    WHOLE,
    Piece,
    kv_heads_on_each,
    plans_of,
    refuse_cut_blocks,
    shard,
    splits_attention,
    transformers_piece,
    vllm_piece,
)
from hubaudit.types import Sourced

if TYPE_CHECKING:
    from hubaudit.types import CacheTensor, LayerSpec, ModelFacts, ParameterCount, TensorGroup

_HEADED = frozenset({"keys", "values", "cross_keys", "cross_values"})
_FAMILIES = ("decoder",)
_VLLM, _TRANSFORMERS, _LLAMA_CPP = "vllm", "transformers", "llama.cpp"
#: What transformers looks for (apply_pipeline_parallelism, distributed/pipeline_parallel.py).
_LAYERS = re.compile(r"(^|\.)layers\.\*\.")


def check(facts: ModelFacts, split: Split, runtime: str) -> None:
    """Whether the engine splits this model so at all.

    Raises:
        SplitError: it does not, or how it does is not known.
    """
    if runtime.replace(".", "_") not in table(TABLE):
        raise SplitError(
            f"how {runtime} splits a model over devices is not estimated", hint="--runtime vllm or transformers"
        )
    if facts.components:
        raise SplitError("how a model of several parts is split over devices is not estimated")
    if facts.parameters is None or not facts.tensor_groups:
        raise SplitError(f"no tensors are known to split: {facts.parameters_reason}")
    if split.pipeline > 1 and facts.family not in _FAMILIES:
        raise SplitError("only decoders are cut into stages of layers", hint="--tp")
    if split.expert > 1 and facts.moe is None:
        raise SplitError("the model has no experts to split", hint="leave out --ep")
    if runtime == _LLAMA_CPP and (split.tensor > 1 or split.expert > 1):
        raise SplitError(
            "how llama.cpp cuts matrices (--split-mode row) is not estimated; --pp N is its --split-mode layer",
            hint="--pp",
        )
    if runtime == _TRANSFORMERS:
        _check_plans(facts, split)
    if split.tensor > 1:
        _check_heads(facts, split, runtime)
        refuse_cut_blocks(facts, split.tensor, runtime, cuts_experts=split.expert == 1)


def _check_plans(facts: ModelFacts, split: Split) -> None:
    tensor, expert = plans_of(facts.model_type)
    for word, count, plan in (("tp", split.tensor, tensor), ("ep", split.expert, expert)):
        if count > 1 and not plan:
            raise SplitError(
                f"transformers has no {word} plan for {facts.model_type} and refuses to split it",
                hint="--pp, or --runtime vllm",
            )
    if split.pipeline > 1 and not any(_LAYERS.search(group.pattern) for group in facts.tensor_groups):
        raise SplitError(
            "transformers cuts only models whose layers are called `layers`",
            hint="--runtime vllm, or `hubaudit place REPO`",
        )
    if split.replicas > 1:
        raise SplitError(
            "transformers shares experts beyond --tp under FSDP only, which is no split of inference",
            hint="--ep as large as --tp",
        )


def _check_heads(facts: ModelFacts, split: Split, runtime: str) -> None:
    heads, kv_heads = facts.attention_heads.value, facts.kv_heads.value
    if heads is not None and heads % split.tensor and (runtime == _VLLM or splits_attention(facts.model_type)):
        raise SplitError(f"{runtime} does not split {heads} attention heads over {split.tensor} devices: not divisible")
    if runtime != _VLLM and kv_heads is not None and splits_attention(facts.model_type) and kv_heads % split.tensor:
        raise SplitError(
            f"transformers does not split {kv_heads} key/value heads over {split.tensor} devices: not divisible",
            hint="vLLM repeats them: --runtime vllm",
        )


def facts_on(facts: ModelFacts, split: Split, place: Place, runtime: str) -> ModelFacts:
    """What one device holds, as facts that every estimator takes.

    Raises:
        SplitError: as :func:`check`, or a tensor cannot be split so.
    """
    layers = layers_on(facts, split, place, runtime)
    groups = tuple(
        part
        for group in facts.tensor_groups
        for part in _staged(facts, group, split, place, layers, runtime)
        for part in (_piece_of(facts, part, split, place, runtime),)
    )
    where = f"rule:{split.label} ({rules_of(runtime)['shard_source']})"
    is_split = split.tensor > 1 and (runtime == _VLLM or splits_attention(facts.model_type))
    count = facts.parameters
    return replace(
        facts,
        tensor_groups=groups,
        parameters=None if count is None else _counted(count, groups, where),
        stored_bytes=sum(group.stored_bytes for group in groups),
        layers=facts.layers if split.pipeline == 1 else Sourced(value=layers[1] - layers[0], where=where),
        layer_plan=_plan(facts, split, runtime, layers),
        attention_heads=_divided(facts.attention_heads, split.tensor, where) if is_split else facts.attention_heads,
        kv_heads=_kv_heads(facts, split, runtime, where),
        intermediate_size=_divided(facts.intermediate_size, split.tensor, where)
        if split.tensor > 1
        else facts.intermediate_size,
    )


def held_whole(facts: ModelFacts, split: Split, runtime: str) -> list[TensorGroup]:
    """Tensors that no rule of vLLM's table names, so that they are counted whole on every device."""
    if runtime != _VLLM or split.tensor == 1:
        return []
    loaded = (group for group in facts.tensor_groups if group.extra is None and len(group.shape) > 1)
    return [group for group in loaded if vllm_piece(facts, group, split.tensor) is None]


def layers_on(facts: ModelFacts, split: Split, place: Place, runtime: str) -> tuple[int, int]:
    """The first layer of a device, and one past its last; all of them where there are no stages.

    Raises:
        SplitError: the number of layers is not known, or there are fewer than stages.
    """
    layers = facts.layers.value
    if split.pipeline == 1:
        return 0, layers or 0
    if layers is None:
        raise SplitError(f"the number of layers is not known: {facts.layers.where}")
    return stage_layers(layers, split, place.stage, runtime)


def _staged(
    facts: ModelFacts, group: TensorGroup, split: Split, place: Place, layers: tuple[int, int], runtime: str
) -> list[TensorGroup]:
    """The group with the tensors of the stage's layers only, or no group: embeddings are on the first stage, the last norm and the head on the last.

    llama.cpp leaves what it reads words with in the host's memory, and a head that is tied to it is a copy on the last device.
    """
    if split.pipeline == 1 or group.role in ("vision", "audio"):
        return [group]
    if group.numbers:
        count = sum(count for number, count in group.numbers if layers[0] <= number < layers[1])
        return [_fewer(group, count)] if count else []
    is_last = place.stage == split.pipeline - 1
    if group.role == "embedding":
        is_first = place.stage == 0 and not (runtime == _LLAMA_CPP and _is_tied(facts))
        is_here = is_first or (is_last and _is_tied(facts))
    else:
        is_here = is_last or group.role not in ("head", "norm")
    return [group] if is_here else []


def _is_tied(facts: ModelFacts) -> bool:
    return facts.tied_embeddings.value is True


def _fewer(group: TensorGroup, count: int) -> TensorGroup:
    return replace(
        group,
        count=count,
        parameters=None if group.parameters is None else group.parameters * count // group.count,
        stored_bytes=group.stored_bytes * count // group.count,
    )


def _piece_of(facts: ModelFacts, group: TensorGroup, split: Split, place: Place, runtime: str) -> TensorGroup:
    """The group with the device's part of each tensor, or its part of the experts."""
    if group.role == "expert" and split.expert > 1:
        experts = None if facts.moe is None else facts.moe.experts.value
        if not experts:
            raise SplitError("the number of experts is not known")
        each_is_a_tensor = ".experts.*" in group.pattern
        part = experts_of(experts, split, place.expert_rank, runtime)
        return _scaled(group, Piece(dimension=None if each_is_a_tensor else 0, part=part, whole=experts))
    if split.tensor == 1:
        return group
    if runtime == _VLLM:
        return _scaled(group, vllm_piece(facts, group, split.tensor) or WHOLE)
    return _scaled(group, transformers_piece(facts, group, split.tensor, place.tensor_rank))


def _scaled(group: TensorGroup, piece: Piece) -> TensorGroup:
    if piece.part == piece.whole:
        return group
    at, shape = piece.dimension, group.logical_shape or group.shape
    smaller = shape if at is None else (*shape[:at], piece.part, *shape[at + 1 :])
    is_packed = group.logical_shape is not None
    count = group.count * piece.part // piece.whole if at is None else group.count
    return replace(
        group,
        count=count,
        shape=group.shape if is_packed else smaller,
        logical_shape=smaller if is_packed else None,
        parameters=None if group.parameters is None else group.parameters * piece.part // piece.whole,
        stored_bytes=-(-group.stored_bytes * piece.part // piece.whole),
    )


def _counted(count: ParameterCount, groups: tuple[TensorGroup, ...], where: str) -> ParameterCount:
    loaded = sum(group.parameters or 0 for group in groups if group.extra is None)
    return replace(count, total=loaded, loaded=loaded, active=None, where=where)


def _plan(facts: ModelFacts, split: Split, runtime: str, layers: tuple[int, int]) -> tuple[LayerSpec, ...] | None:
    if facts.layer_plan is None:
        return None
    own = [layer for layer in facts.layer_plan if split.pipeline == 1 or layers[0] <= layer.index < layers[1]]
    if split.tensor == 1 or (runtime != _VLLM and not splits_attention(facts.model_type)):
        return tuple(own)
    return tuple(
        replace(layer, tensors=tuple(_cached(facts, tensor, split.tensor, runtime) for tensor in layer.tensors))
        for layer in own
    )


def _cached(facts: ModelFacts, tensor: CacheTensor, count: int, runtime: str) -> CacheTensor:
    """Keys and values by heads; states by devices under vLLM, whole under transformers, whose plans gather what makes them; latents whole."""
    if tensor.name in _HEADED:
        kv_heads = facts.kv_heads.value
        if not kv_heads or tensor.elements_per_token % kv_heads:
            raise SplitError(f"how {tensor.elements_per_token} elements a token are split by heads is not known")
        each = kv_heads_on_each(kv_heads, count)
        return replace(tensor, elements_per_token=tensor.elements_per_token // kv_heads * each)
    if tensor.fixed_elements and runtime == _VLLM:
        return replace(tensor, fixed_elements=-(-tensor.fixed_elements // count))
    return tensor


def _kv_heads(facts: ModelFacts, split: Split, runtime: str, where: str) -> Sourced[int]:
    kv_heads = facts.kv_heads.value
    if split.tensor == 1 or kv_heads is None or (runtime != _VLLM and not splits_attention(facts.model_type)):
        return facts.kv_heads
    return Sourced(value=kv_heads_on_each(kv_heads, split.tensor), where=where)


def _divided(fact: Sourced[int], count: int, where: str) -> Sourced[int]:
    return fact if fact.value is None else Sourced(value=shard(fact.value, count, 0), where=where)
