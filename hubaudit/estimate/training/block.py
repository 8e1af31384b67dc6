"""What kind of block a model is made of: the table's row for its type, its widths, and how wide its streams are under a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.component import Input, given, known

if TYPE_CHECKING:
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.types import ModelFacts, Sourced

TABLE = "blocks.toml"
#: Kinds of layers whose computation is that of a decoder block with attention over keys and values.
_ATTENTION_KINDS = frozenset({"full", "sliding", "chunked", "none", "hybrid_full", "cross"})
_BYTE = 8
_FLOAT = 4
_HALF = 2
_LARGEST_FLASH_HEAD = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One row of the table; see its head for what the words mean."""

    norm: str
    norms: int
    qk_norm: bool
    mlp: str
    activation: str
    rope: str
    fused: frozenset[str]
    dropouts: int
    parallel: bool
    cached: bool
    softcap: bool
    sdpa_is_math: bool
    softmax_is_native: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Bytes of one value of each stream: ``stream`` between layers, ``inner`` of products and attention, ``adapter`` of adapters.

    With ``casts`` autocast gives every product a 16-bit cast of its own of an input that is wider. ``is_trained`` is false for the base
    under adapters: its weights need no gradient, and so autograd keeps no input for it.
    """

    stream: int
    inner: int
    head: int
    adapter: int
    casts: bool
    is_trained: bool


@cache
def _rows() -> dict[str, dict[str, Any]]:
    rows = table(TABLE)
    return rows | {name: row for row in rows.values() for name in row.get("like", ())}


def block_of(facts: ModelFacts) -> Block | str:
    """The block of the model's type, or why there is none."""
    row = _rows().get(facts.model_type or "")
    if row is None:
        return f"how blocks of type {facts.model_type} compute is not in the table"
    kinds = {layer.kind for layer in facts.layer_plan or ()}
    strange = kinds - _ATTENTION_KINDS
    if strange:
        return f"what layers of kind {', '.join(sorted(strange))} keep for the backward pass is not modelled"
    return Block(
        norm=row["norm"],
        norms=row["norms"],
        qk_norm=row.get("qk_norm", False),
        mlp=row["mlp"],
        activation=row["activation"],
        rope=row["rope"],
        fused=frozenset(row.get("fused", ())),
        dropouts=row.get("dropouts", 0),
        parallel=row.get("parallel", False),
        cached=row.get("cached", False),
        softcap=row.get("softcap", False),
        sdpa_is_math=row.get("sdpa_is_math", False),
        softmax_is_native=row.get("softmax_is_native", False),
    )


def flow_of(setting: TrainSetting) -> Flow:
    """How wide values are.

    A base that bitsandbytes holds is prepared for training (PEFT's ``prepare_model_for_kbit_training``): norms, embeddings and head in float32,
    so that the stream between layers is float32, and the quantized layers give back what they are given.
    """
    recipe = setting.recipe
    compute = bits_of()[recipe.compute] // _BYTE
    weights = recipe.weight_bits // _BYTE
    is_prepared = setting.is_prepared
    stream = _FLOAT if is_prepared else max(compute, weights)
    return Flow(
        stream=stream,
        inner=compute if recipe.autocast else stream,
        head=compute if recipe.autocast else stream,
        adapter=compute if recipe.autocast else max(_FLOAT, stream),
        casts=recipe.autocast and stream > compute,
        is_trained=setting.adapters is None,
    )


def dimensions(facts: ModelFacts, setting: TrainSetting) -> dict[str, Input] | str:
    """The numbers that activations are made of, each with its place; or which of them is not known."""
    batch, sequence = setting.batch_size, setting.sequence_tokens
    inputs = {
        "tokens": given(batch.value * sequence.value, "batch size × sequence tokens"),
        "sequence_tokens": sequence,
    }
    names = ("layers", "hidden_size", "intermediate_size", "attention_heads", "kv_heads", "head_dim", "vocab_size")
    for name in names:
        fact: Sourced[int] = getattr(facts, name)
        value = known(fact)
        if value is None:
            return f"{name} is not known: {fact.where}"
        inputs[name] = value
    heads, head_dim = inputs["attention_heads"].value, inputs["head_dim"].value
    inputs["query_size"] = given(heads * head_dim, "attention_heads × head_dim")
    inputs["key_size"] = given(inputs["kv_heads"].value * head_dim, "kv_heads × head_dim")
    moe = facts.moe
    if setting.adapters is not None:
        inputs["rank"] = given(setting.adapters.rank, "workload")
    if moe is not None:
        for name, fact in (("experts_per_token", moe.experts_per_token), ("expert_size", moe.expert_intermediate_size)):
            value = known(fact) or (known(facts.intermediate_size) if name == "expert_size" else None)
            if value is None:
                return f"{name} is not known: {fact.where}"
            inputs[name] = value
    return inputs


def kernel_of(block: Block, flow: Flow, setting: TrainSetting, inputs: dict[str, Input]) -> str:
    """Which attention kernel runs: ``flash``, ``efficient``, ``math`` or ``eager``.

    ``scaled_dot_product_attention`` without a mask takes flash attention for 16-bit values, the memory-efficient kernel for float32, and
    plain products where float32 meets grouped heads (torch 2.6 and 2.13, compute capability 8.x).
    """
    if setting.attention == "eager":
        return "eager"
    if block.sdpa_is_math:
        return "math"
    if flow.inner <= _HALF and inputs["head_dim"].value <= _LARGEST_FLASH_HEAD:
        return "flash"
    return "efficient" if inputs["kv_heads"].value == inputs["attention_heads"].value else "math"
