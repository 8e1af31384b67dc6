"""What kind of block a model is made of: the table's row for its type, its widths, and which attention kernel runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.estimate.component import Input, given, known
from hubaudit.estimate.training.mixers import mixer_dimensions
from hubaudit.facts.loading import loaded_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.estimate.training.flow import Flow
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.types import ModelFacts, Sourced

TABLE = "blocks.toml"
#: Kinds of layers whose computation is that of a decoder block with attention over keys and values.
_ATTENTION_KINDS = frozenset({"full", "sliding", "chunked", "none", "hybrid_full", "cross"})
_BYTE = 8
_FLOAT = 4
_HALF = 2
_LARGEST_FLASH_HEAD = 256
#: What layers without attention have none of.
_OF_ATTENTION = frozenset({"attention_heads", "kv_heads", "head_dim"})
_OF_MLP = frozenset({"intermediate_size"})


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
    gated_attention: bool
    eager_only: bool
    loss_is_native: bool
    mlp_dropout: bool
    attention_dropout: bool
    bias_sums: bool
    router: str
    around: str
    around_trained: str
    between: str
    final_norms: int
    post_norm: bool
    experts_keep: str
    mixers: Mapping[str, str]
    encoder_mixer: str | None


@cache
def _rows() -> dict[str, dict[str, Any]]:
    rows = table(TABLE)
    return {**rows, **{name: row for row in rows.values() for name in row.get("like", ())}}


def block_of(facts: ModelFacts) -> Block | str:
    """The block of the model's type, or why there is none."""
    row = _rows().get(facts.model_type or "")
    if row is None:
        return f"how blocks of type {facts.model_type} compute is not in the table"
    kinds = {layer.kind for layer in facts.layer_plan or ()}
    strange = kinds - _ATTENTION_KINDS - row.get("mixers", {}).keys()
    if strange:
        return f"what layers of kind {', '.join(sorted(strange))} keep for the backward pass is not modelled"
    if row.get("dense_only") and facts.moe is not None:
        return f"what the experts of type {facts.model_type} keep for the backward pass is not modelled"
    gate = row.get("gated_with")
    if gate and any(gate in group.pattern for group in facts.tensor_groups):
        row = row | {"mlp": "gated", "activation": "gelu_python"}
    dropped = _dropped(facts, row)
    return Block(
        norm=row["norm"],
        norms=row["norms"],
        qk_norm=row.get("qk_norm", False),
        mlp=row["mlp"],
        activation=row["activation"],
        rope=row["rope"],
        fused=frozenset(row.get("fused", ())),
        dropouts=row.get("dropouts", 0) if "hidden" in dropped else 0,
        attention_dropout="attention" in dropped,
        parallel=row.get("parallel", False),
        cached=row.get("cached", False),
        softcap=row.get("softcap", False),
        sdpa_is_math=row.get("sdpa_is_math", False),
        softmax_is_native=row.get("softmax_is_native", False),
        gated_attention=row.get("gated_attention", False),
        eager_only=row.get("eager_only", False),
        loss_is_native=(facts.architecture or "").endswith(tuple(row.get("native_loss", ()))),
        mlp_dropout=row.get("mlp_dropout", False) and "hidden" in dropped,
        bias_sums=row.get("bias_sums", False),
        router=row.get("router", ""),
        around=row.get("around", ""),
        around_trained=row.get("around_trained", ""),
        between=row.get("between", ""),
        final_norms=row.get("final_norms", 1),
        post_norm=row.get("post_norm", False),
        experts_keep=row.get("experts_keep", ""),
        mixers=row.get("mixers", {}),
        encoder_mixer=row.get("encoder_mixer"),
    )


def _dropped(facts: ModelFacts, row: dict[str, Any]) -> frozenset[str]:
    """What is dropped of, ``hidden`` values and ``attention``'s scores: all that the type drops, but where the config sets the rate to nothing."""
    off = {name for name, rate in facts.dropout_rates if rate == 0}
    return frozenset(what for what, names in row.get("dropout_rates", {}).items() if not off.issuperset(names))


def dimensions(facts: ModelFacts, setting: TrainSetting, block: Block) -> dict[str, Input] | str:
    """The numbers that activations are made of, each with its place; or which of them is not known."""
    sharing = setting.sharing
    batch, sequence = setting.batch_size, setting.sequence_tokens
    if sharing.cp > 1:
        sequence = given(-(-sequence.value // sharing.cp), "sequence tokens ÷ cp, rounded up")
    inputs = {
        "tokens": given(batch.value * sequence.value, "batch size × sequence tokens"),
        "sequence_tokens": sequence,
        "shard_tokens": given(-(-batch.value * sequence.value // sharing.tp), "tokens ÷ tp, rounded up"),
    }
    unneeded = _OF_ATTENTION if block.mixers and block.rope == "none" else frozenset()
    unneeded |= _OF_MLP if block.mlp == "none" else frozenset()
    names = ("layers", "hidden_size", "intermediate_size", "attention_heads", "kv_heads", "head_dim", "vocab_size")
    for name in names:
        fact: Sourced[int] = getattr(facts, name)
        value = known(fact)
        if value is None and name not in unneeded:
            return f"{name} is not known: {fact.where}"
        inputs[name] = value or given(0, f"layers have none: {fact.where}")
    heads, head_dim = inputs["attention_heads"].value, inputs["head_dim"].value
    inputs["query_size"] = given(heads * head_dim, "attention_heads × head_dim")
    inputs["key_size"] = given(inputs["kv_heads"].value * head_dim, "kv_heads × head_dim")
    inputs["intermediate_size"] = _mlp_width(facts, inputs["intermediate_size"])
    inputs["shared_size"] = given(_shared_size(facts, inputs), "shapes of the shared expert")
    for name in {*block.mixers.values(), *filter(None, (block.encoder_mixer,))}:
        sizes = mixer_dimensions(facts, name)
        if isinstance(sizes, str):
            return sizes
        inputs |= sizes
    inputs |= _scanned(batch.value, sequence.value, inputs)
    moe = facts.moe
    if setting.adapters is not None:
        inputs["rank"] = given(setting.adapters.rank, "workload")
    if moe is not None:
        width = moe.expert_intermediate_size
        for name, fact in (
            ("experts", moe.experts),
            ("experts_per_token", moe.experts_per_token),
            ("expert_size", facts.intermediate_size if known(width) is None else width),
        ):
            value = known(fact)
            if value is None:
                return f"{name} is not known: {fact.where}"
            inputs[name] = value
    return inputs


def _scanned(sequences: int, tokens: int, inputs: Mapping[str, Input]) -> dict[str, Input]:
    """Chunks of a scan that takes so many tokens of each sequence at once, and the tokens in them, padding among them; nothing without one."""
    if "scan_chunk" not in inputs:
        return {}
    chunk = inputs["scan_chunk"].value
    chunks = sequences * -(-tokens // chunk)
    return {
        "sequences": given(sequences, "workload"),
        "scan_chunks": given(chunks, "sequences × (sequence tokens ÷ scan_chunk, rounded up)"),
        "scan_tokens": given(chunks * chunk, "scan_chunks × scan_chunk"),
    }


def _mlp_width(facts: ModelFacts, said: Input) -> Input:
    """Width of the dense MLP: a config may name one that the class adjusts (LFM2), so shapes come first."""
    for group in loaded_groups(facts):
        is_dense = group.role == "mlp" and group.pattern.endswith((".down_proj.weight", ".w2.weight"))
        if len(group.logical_shape or group.shape) < 2:  # no matrix, whatever it is called
            continue
        if is_dense or (facts.moe is None and group.pattern.endswith(".shared_mlp.output_linear.weight")):
            return given((group.logical_shape or group.shape)[1], f"shapes: {group.pattern}")
    return said


def _shared_size(facts: ModelFacts, inputs: dict[str, Input]) -> int:
    """Width of the experts that every token goes through, or of the dense MLP where there are none."""
    widths = [
        (group.logical_shape or group.shape)[1]
        for group in loaded_groups(facts)
        if group.role == "shared_expert"
        and group.pattern.endswith("down_proj.weight")
        and len(group.logical_shape or group.shape) > 1
    ]
    return max(widths, default=inputs["intermediate_size"].value)


def kernel_of(block: Block, flow: Flow, setting: TrainSetting, inputs: dict[str, Input]) -> str:
    """Which attention kernel runs: ``flash``, ``efficient``, ``math`` (``math_single_key``) or ``eager``.

    ``scaled_dot_product_attention`` without a mask takes flash attention for 16-bit values, the memory-efficient kernel for float32, and
    plain products where float32 meets grouped heads (torch 2.6 and 2.13, compute capability 8.x). A product expands a single head of keys to all
    heads, which of a single sequence is a view, and of several a copy (torch 2.13.0 aten/src/ATen/native/LinearAlgebra.cpp, ``_matmul_impl``).
    """
    if setting.attention == "eager" or block.eager_only:
        return "eager"
    if block.sdpa_is_math:
        is_view = inputs["kv_heads"].value == setting.batch_size.value == 1
        return "math_single_key" if is_view else "math"
    if "mla" in block.mixers.values():
        return "efficient"  # values are narrower than queries and keys, which flash attention does not take
    if flow.inner <= _HALF and inputs["head_dim"].value <= _LARGEST_FLASH_HEAD:
        return "flash"
    return "efficient" if inputs["kv_heads"].value == inputs["attention_heads"].value else "math"
