"""Which part of a tensor one device holds: a piece of one of its dimensions, by the engine's rule for the tensor's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.split.layout import TABLE, SplitError

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts, TensorGroup

_PLANS = "tp_plans.json"
#: Styles of transformers' plans (ALL_PARALLEL_STYLES) and the dimension that each cuts of a weight, counted from its end or its start.
_OUTPUTS = frozenset({"colwise", "colwise_gather_output", "colwise_rep", "packed_colwise"})
_INPUTS = frozenset({"rowwise", "rowwise_split_input", "rowwise_rep", "packed_rowwise"})
_ROWS, _COLUMNS = "embedding_rowwise", "embedding_colwise"
#: Matrices of one expert in a checkpoint, under the name of the fused parameter that transformers makes of them.
_FUSED = (
    (re.compile(r"\.(gate_proj|up_proj|gate_up_proj|w1|w3|gate|up)(_\w+)?(\.\w+)?$"), ".experts.gate_up_proj"),
    (re.compile(r"\.(down_proj|w2|down)(_\w+)?(\.\w+)?$"), ".experts.down_proj"),
)
_SINGLE = re.compile(r"\.(gate_proj|up_proj|w1|w3|gate|up)(\.\w+)?$")
#: Modules that hold matrices the other way round, outputs last (Conv1D).
_TRANSPOSED = frozenset({"gpt2", "openai-gpt"})
#: What stands behind a weight's name in that of its scales, one a block: transformers' FP8, compressed-tensors.
_SCALES = ("_scale_inv", "_scale")
#: Towers beside the language model, which the engines' rules for it do not speak of.
_TOWERS = frozenset({"vision", "audio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """``part`` of ``whole`` along one dimension of the tensor; ``dimension`` is ``None`` where all of it is on every device."""

    dimension: int | None = None
    part: int = 1
    whole: int = 1


WHOLE = Piece()


def shard(size: int, count: int, rank: int) -> int:
    """As torch cuts: pieces of the rounded-up size from the front, the last ones shorter or empty (DTensor's Shard)."""
    each = -(-size // count)
    return max(0, min(each, size - rank * each))


@cache
def plans_of(model_type: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """The tensor-parallel and expert-parallel plans of transformers for a model type; empty where it has none."""
    rows = table(_PLANS)
    tensor, expert = rows["types"].get(model_type, (None, None))
    return tuple({} if at is None else rows["plans"][at] for at in (tensor, expert))


def splits_attention(model_type: str | None) -> bool:
    """Whether transformers' plan leaves each device its own key/value heads (get_kv_heads_per_rank, distributed/tensor_parallel.py)."""
    plan = plans_of(model_type)[0]
    ends = ("k_proj", "qkv_proj", "query_key_value")
    return any(name.rpartition(".")[2] in ends and style == "colwise" for name, style in plan.items())


def transformers_piece(facts: ModelFacts, group: TensorGroup, count: int, rank: int) -> Piece:
    """The piece of a tensor on one of ``count`` devices by the model type's own plan; all of it where the plan does not name it."""
    if group.role in _TOWERS:
        return WHOLE
    style = _style(plans_of(facts.model_type)[0], group)
    dimension = _dimension(style, group)
    if dimension is None or not _shape(group):
        return WHOLE
    if group.kind == "scale":
        return _share_of_scales(group, count, rank)
    size = _shape(group)[dimension]
    if (style or "").startswith("packed") and not _SINGLE.search(
        group.pattern
    ):  # two matrices in one, each cut by itself
        return Piece(dimension=dimension, part=2 * shard(size // 2, count, rank), whole=size)
    return Piece(dimension=dimension, part=shard(size, count, rank), whole=size)


def _style(plan: dict[str, str], group: TensorGroup) -> str | None:
    """The plan's rule for a tensor: under its own name, or its module's, below any prefix (``_get_parameter_plan``)."""
    pattern = group.pattern
    if ".experts" in pattern:
        wanted = next((fused for match, fused in _FUSED if match.search(pattern)), None)
        return next((style for name, style in plan.items() if wanted and f".{name}".endswith(wanted)), None)
    words = pattern.split(".")
    for start in range(len(words)):
        for name in (".".join(words[start:]), ".".join(words[start:-1])):
            if name in plan:
                return plan[name]
    return None


def _dimension(style: str | None, group: TensorGroup) -> int | None:
    dimensions = len(_shape(group))
    if style == _ROWS or (style in _OUTPUTS and dimensions == 1):
        return 0
    if style == _COLUMNS:
        return 1
    if style in _OUTPUTS:
        return dimensions - 2
    if style in _INPUTS and not (dimensions == 1 or group.pattern.endswith("bias")):
        return dimensions - 1
    return None


def vllm_piece(facts: ModelFacts, group: TensorGroup, count: int) -> Piece | None:
    """The piece of a tensor on each of ``count`` devices under vLLM; ``None`` where no row of the table names it.

    Raises:
        SplitError: vLLM refuses to split it so.
    """
    split = _vllm_split(group)
    if split in (None, "whole"):
        return None if split is None else WHOLE
    shape = _shape(group)
    if not shape or (split == "row" and (len(shape) == 1 or group.pattern.endswith("bias"))):
        return WHOLE
    if group.kind == "scale":
        return _share_of_scales(group, count, 0)
    at = _vllm_dimension(facts, group, split == "row")
    if split in ("kv", "qkv") and group.role not in _TOWERS:
        return _by_heads(facts, split, count, at, shape[at])
    size = _padded(shape[at]) if split == "vocab" else shape[at]
    if size % count:
        if group.role in _TOWERS:
            return WHOLE
        raise SplitError(f"vLLM does not split {group.pattern}: {size} is not divisible by {count}")
    return Piece(dimension=at, part=size // count, whole=shape[at])


def refuse_cut_blocks(facts: ModelFacts, count: int, runtime: str, *, cuts_experts: bool) -> None:
    """Weights that have one scale a block of rows and columns (FP8 of DeepSeek-V3: 128 × 128) are cut between blocks only.

    vLLM refuses anything else. transformers cuts the scales as it cuts the weight, each at its own length: where a piece begins within a block,
    the scales beside it are another block's.

    Raises:
        SplitError: a piece would begin or end within a block.
    """
    groups = [group for group in facts.tensor_groups if group.extra is None and len(_shape(group)) > 1]
    scales = {group.pattern: group for group in groups if group.kind == "scale"}
    for group in groups:
        scale = next((scales[name] for end in _SCALES if (name := group.pattern + end) in scales), None)
        if scale is None or (group.role == "expert" and not cuts_experts):
            continue
        piece = vllm_piece(facts, group, count) if runtime == "vllm" else transformers_piece(facts, group, count, 0)
        at = None if piece is None else piece.dimension
        if piece is None or at is None or at >= len(scale.shape) or not 1 < scale.shape[at] < _shape(group)[at]:
            continue
        block = -(-_shape(group)[at] // scale.shape[at])
        if piece.part % block:
            raise SplitError(
                f"{runtime} cannot split {group.pattern} over {count} devices: {piece.part} of {piece.whole} are no whole blocks of {block}"
            )


def _share_of_scales(group: TensorGroup, count: int, rank: int) -> Piece:
    """Scales go with the weight that they are for, in as many pieces as it, whatever their own layout."""
    size = _shape(group)[0]
    return Piece(dimension=0, part=shard(size, count, rank), whole=size) if size else WHOLE


def kv_heads_on_each(kv_heads: int, count: int) -> int:
    """Key/value heads that vLLM keeps on each of ``count`` devices: their share, or one that several devices repeat.

    Raises:
        SplitError: neither number is divisible by the other.
    """
    if max(kv_heads, count) % min(kv_heads, count):
        raise SplitError(f"vLLM does not split {kv_heads} key/value heads over {count} devices")
    return max(1, kv_heads // count)


def _by_heads(facts: ModelFacts, split: str, count: int, dimension: int, size: int) -> Piece:
    """A projection of keys or values, or of all three together, cut at heads."""
    heads, kv_heads = facts.attention_heads.value, facts.kv_heads.value
    if heads is None or kv_heads is None:
        raise SplitError("the numbers of heads are not known, so neither is how attention is split")
    each = kv_heads_on_each(kv_heads, count)
    if split == "kv":
        return Piece(dimension=dimension, part=size * each // kv_heads, whole=size)
    return Piece(dimension=dimension, part=size * (heads // count + 2 * each) // (heads + 2 * kv_heads), whole=size)


def _vllm_split(group: TensorGroup) -> str | None:
    return next((split for match, split in _vllm_rules() if match.search(group.pattern)), None)


@cache
def _vllm_rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["match"]), row["split"]) for row in table(TABLE)["vllm"]["rule"])


def _vllm_dimension(facts: ModelFacts, group: TensorGroup, is_row: bool) -> int:
    """The dimension of outputs (or, for a row split, of inputs); a stack of experts has them behind the first."""
    dimensions = len(_shape(group))
    if dimensions == 1:
        return 0
    first = 1 if group.kind == "experts" and dimensions > 2 else 0
    is_second = is_row is not (facts.model_type in _TRANSPOSED and group.kind in ("linear", "conv1d"))
    return first + is_second


def _padded(size: int) -> int:
    multiple = int(table(TABLE)["vllm"]["vocab_multiple"])
    return -(-size // multiple) * multiple


def _shape(group: TensorGroup) -> tuple[int, ...]:
    return group.logical_shape or group.shape
