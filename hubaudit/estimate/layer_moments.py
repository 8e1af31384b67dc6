"""Moments within a layer while a prompt goes through it: what each kind of block has alive at once, as formulas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hubaudit.estimate.component import Input, component, given, known
from hubaudit.estimate.training.block import Block, block_of
from hubaudit.estimate.training.mixers import mixer_dimensions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts

#: cos and sin of the positions: of one sequence, or of each, as generate() counts every sequence's positions by its mask.
_ROTARY = " + 2 * prompt_tokens * head_dim * dtype_bits // 8"
_ROTARY_OF_EACH = " + 2 * batch_size * prompt_tokens * head_dim * dtype_bits // 8"
#: They make a mask for sliding layers where they have none too (transformers 5.23.0, models/qwen2_moe/modeling_qwen2_moe.py).
_BOTH_MASKS = frozenset({"qwen2_moe"})
#: Streams of the hidden size (the embedding, the sums before and after attention, the norm's result) and tensors of the MLP's width.
_MLP = "batch_size * prompt_tokens * (streams * hidden_size + widths * intermediate_size) * dtype_bits // 8"
#: Attention as plain products: the stream, queries (and keys and values where they are copied), a mask of each kind, and the scores.
_EAGER = (
    "batch_size * (prompt_tokens * (3 * hidden_size + query_copies * attention_heads * head_dim)"
    " + key_tokens * key_copies * attention_heads * head_dim) * dtype_bits // 8"
    " + batch_size * prompt_tokens * key_tokens * (masks * dtype_bits + attention_heads * score_bits) // 8"
)
#: The same in scaled_dot_product_attention's own kernel of plain products, which takes 16 bit up to float32: queries twice, the scores twice, a byte
#: for each of them while rows without any are looked for (_safe_softmax), and the mask.
_MATH = (
    "batch_size * prompt_tokens * (3 * hidden_size * dtype_bits + attention_heads * head_dim * (2 * dtype_bits + 64)) // 8"
    " + batch_size * prompt_tokens * prompt_tokens * (attention_heads * 72 + dtype_bits) // 8 + prompt_tokens * prompt_tokens"
)
#: And where it is given float32 with grouped heads, which the fused kernels do not take: keys and values of all heads, and one mask.
_MATH_GROUPED = (
    "batch_size * prompt_tokens * (3 * hidden_size + 4 * attention_heads * head_dim) * dtype_bits // 8"
    " + prompt_tokens * prompt_tokens * (batch_size * attention_heads * (2 * dtype_bits + 8) + dtype_bits) // 8"
)
#: T5's bias of positions while it is made of distances: six tables of 64-bit integers and one of bytes, beside the first layer's projections.
_DISTANCES = (
    "49 * prompt_tokens * prompt_tokens"
    " + batch_size * prompt_tokens * (2 * hidden_size + 3 * attention_heads * head_dim) * dtype_bits // 8"
)
_BIAS = " + prompt_tokens * prompt_tokens * attention_heads * dtype_bits // 8"
#: The fused kernel under T5's bias, which all layers share: the bias and a copy of it in the kernel's order, three streams, queries, keys, values, result.
_BIASED = (
    "2 * prompt_tokens * prompt_tokens * attention_heads * dtype_bits // 8"
    " + batch_size * prompt_tokens * (3 * hidden_size + 4 * attention_heads * head_dim) * dtype_bits // 8"
)
#: The layer's own variable keeps attention's weights through its MLP, and the model its masks.
_KEPT = " + batch_size * prompt_tokens * key_tokens * (masks + attention_heads) * dtype_bits // 8"
#: Experts: the stream, and for each token and each of its experts the inputs in the experts' order with either gate, up and their product, or the
#: outputs three times while they are weighted and put back in order.
_EXPERTS = (
    "batch_size * prompt_tokens * (4 * hidden_size + experts_per_token * max(hidden_size + 4 * expert_intermediate_size, 4 * hidden_size))"
    " * dtype_bits // 8"
)
#: Mamba's scan in plain torch: the discretized state matrices of all tokens three times in float32, what leads to them, and the outputs one by one and together.
_SCAN = (
    "batch_size * prompt_tokens * (hidden_size * (2 * dtype_bits + 32) + inner_size * (7 * dtype_bits + 64)) // 8"
    " + 12 * batch_size * prompt_tokens * inner_size * state"
)
_SCAN_SOURCE = (
    "transformers 5.23.0 models/mamba/modeling_mamba.py, the sequential scan that runs where mamba_ssm's kernels are not installed; with them a fraction of it, "
    "hence the wide band; within 2 % of a trace"
)
_TRACED = "storage lifetimes of the model's own code, transformers 5.23.0, torch 2.13: fixtures/generation/traces.jsonl"
_UNTRACED = "as for a gated decoder block; this model's blocks were not traced, hence the wide band"
_ROUTED = "transformers 5.23.0, integrations/moe.py (grouped_mm_experts_forward), by the lifetimes of its tensors"
#: Model types whose peaks are recorded in fixtures/generation/traces.jsonl and met, or whose modeling files inherit such a block.
_TRACED_TYPES = frozenset(
    {"llama", "mistral", "qwen2", "qwen3", "phi3", "gpt2", "falcon", "t5", "gemma2", "mixtral", "qwen3_moe", "gpt_oss"}
)
_TRACED_PERCENT = (5, 5)
_UNTRACED_PERCENT = (50, 50)
_FLOAT_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMoment:
    """What is alive together within a layer: a formula, the inputs that it needs beside the model's widths, and whose word it is."""

    formula: str
    source: str
    band_percent: tuple[int, int]
    inputs: Mapping[str, Input] = field(default_factory=dict)


def origin(facts: ModelFacts) -> tuple[str, tuple[int, int]]:
    """Whose word the formulas are for this model's blocks, and their band in percent."""
    if facts.model_type in _TRACED_TYPES:
        return _TRACED, _TRACED_PERCENT
    return _UNTRACED, _UNTRACED_PERCENT


def layer_moments(facts: ModelFacts, setting: Setting, routed: Mapping[str, Input] | None) -> Iterator[LayerMoment]:
    """Every moment that may be the worst one for a layer of this model under this attention."""
    source, band = origin(facts)
    found = block_of(facts)
    block = None if isinstance(found, str) else found
    rotary = _rotary(setting, block)
    beside = (_BIAS if _has_position_bias(block) else "") + rotary
    yield LayerMoment(formula=_MLP + beside, source=source, band_percent=band, inputs=_mlp(block))
    if _is_eager(setting, block):
        yield LayerMoment(
            formula=_EAGER + beside, source=source, band_percent=band, inputs=_eager(facts, setting, block)
        )
        kept = _MLP + _kept(block)
        yield LayerMoment(
            formula=kept + rotary, source=source, band_percent=band, inputs=_mlp(block) | _scores(facts, setting, block)
        )
    elif block is not None and block.sdpa_is_math:
        yield LayerMoment(formula=_MATH + rotary, source=source, band_percent=band)
    elif _is_math(facts, setting):
        yield LayerMoment(formula=_MATH_GROUPED + rotary, source=source, band_percent=band)
    if _has_position_bias(block):
        yield LayerMoment(formula=_DISTANCES, source=source, band_percent=band)
        if not _is_eager(setting, block):
            yield LayerMoment(formula=_BIASED, source=source, band_percent=band)
    if routed is not None:
        yield LayerMoment(formula=_EXPERTS + rotary, source=_ROUTED, band_percent=band, inputs=routed)


def matrix_moment(facts: ModelFacts, setting: Setting, which: str) -> LayerMoment:
    """What is alive beside one product of the MLP: of the MLP's width a gated one's first factor, and what the last product reads."""
    source, band = origin(facts)
    found = block_of(facts)
    block = None if isinstance(found, str) else found
    is_plain = block is not None and (block.mlp == "plain" or "gate_up" in block.fused)
    widths = given(0 if which == "in" and is_plain else 1, "rule:the MLP's own tensors")
    inputs = _mlp(block) | {"widths": widths}
    if not _is_eager(setting, block):
        beside = (_BIAS if _has_position_bias(block) else "") + _rotary(setting, block)
        return LayerMoment(formula=_MLP + beside, source=source, band_percent=band, inputs=inputs)
    formula = _MLP + _kept(block) + _rotary(setting, block)
    return LayerMoment(
        formula=formula, source=source, band_percent=band, inputs=inputs | _scores(facts, setting, block)
    )


def _is_eager(setting: Setting, block: Block | None) -> bool:
    return setting.attention == "eager" or (block is not None and block.eager_only)


def _rotary(setting: Setting, block: Block | None) -> str:
    if block is not None and block.rope == "none":
        return ""
    return _ROTARY_OF_EACH if setting.new_tokens.value else _ROTARY


def _kept(block: Block | None) -> str:
    """Attention's weights and masks through the MLP, and T5's bias of positions."""
    return _KEPT + (_BIAS if _has_position_bias(block) else "")


def _scores(facts: ModelFacts, setting: Setting, block: Block | None) -> dict[str, Input]:
    """How many masks there are, and how many keys each query is scored against: a static cache gives all that it has room for."""
    kinds = {layer.kind for layer in facts.layer_plan or ()} & {"full", "sliding", "chunked"}
    count = 2 if facts.model_type in _BOTH_MASKS else max(len(kinds), 1)
    return {
        "masks": given(0 if _has_position_bias(block) else count, "rule:one for each kind of attention"),
        "key_tokens": _keys(facts, setting),
    }


def _keys(facts: ModelFacts, setting: Setting) -> Input:
    """Of the layer with most."""
    prompt = setting.prompt_tokens
    if "static" not in setting.cache or facts.family == "encoder-decoder":
        return prompt
    room = max(prompt.value + setting.new_tokens.value - 1, setting.max_cache_len.value)
    windows = [tensor.window_tokens for layer in facts.layer_plan or () for tensor in layer.tensors]
    kept = max((min(room, window or room) for window in windows), default=room)
    return given(max(prompt.value, kept), "rule:as many as the static cache has room for")


def routed_inputs(facts: ModelFacts) -> dict[str, Input] | None:
    """How many experts a token goes through and how wide they are; ``None`` where there are none, or one is not known."""
    if facts.moe is None:
        return None
    per_token = known(facts.moe.experts_per_token)
    width = known(facts.moe.expert_intermediate_size) or known(facts.intermediate_size)
    if per_token is None or width is None:
        return None
    return {"experts_per_token": per_token, "expert_intermediate_size": width}


def scanned(facts: ModelFacts, setting: Setting) -> Component | str:
    """The worst moment within a layer of Mamba; a reason where its sizes are not known."""
    sizes = mixer_dimensions(facts, "mamba1")
    hidden_size = known(facts.hidden_size)
    if isinstance(sizes, str) or hidden_size is None:
        return sizes if isinstance(sizes, str) else f"hidden_size is not known: {facts.hidden_size.where}"
    inputs = {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "dtype_bits": setting.dtype_bits,
        "hidden_size": hidden_size,
    }
    return component(
        "activations", "Activation", _SCAN, inputs | sizes, exactness="formula", source=_SCAN_SOURCE,
        band_percent=(95, 5),
    )  # fmt: skip


def _mlp(block: Block | None) -> dict[str, Input]:
    """How many streams and how many tensors of the MLP's width are alive in it."""
    streams, widths = 4, 3
    if block is not None and block.mlp == "plain":
        widths = 4 if block.activation == "gelu_python" else 2
    elif block is not None and "gate_up" in block.fused:
        widths = 4
    if block is not None and block.post_norm:
        streams = 3  # what the norm made is itself added to the MLP's result
    if block is not None and block.cached:
        streams = 6  # the embeddings of words and of positions have names of their own
    return {
        "streams": given(streams, "rule:what lies between the MLP's norms"),
        "widths": given(widths, "rule:the MLP's own tensors"),
    }


def _eager(facts: ModelFacts, setting: Setting, block: Block | None) -> dict[str, Input]:
    """Copies of queries, kinds of masks, and the bits of all tensors of scores that are alive at once."""
    is_grouped = _is_grouped(facts)
    copies = 3 if is_grouped else 1
    if block is not None and "qkv" in block.fused:
        # Of every head its three; and their rotated queries and keys, or the embedding of positions. Falcon's one key head is next to nothing.
        copies = 4 if block.rope in ("cat", "none") else 2
    elif _has_position_bias(block):
        copies = 3
    is_repeated = is_grouped and copies > 2
    bits = setting.dtype_bits.value
    if block is not None and block.softmax_is_native:
        # What has no fused kernel joins a column of sinks to the scores.
        score_bits = bits * (4 if block.parallel else 3 if block.eager_only else 2)
    else:
        score_bits = bits + (2 if bits < _FLOAT_BITS else 1) * _FLOAT_BITS
    return {
        "query_copies": given(copies - 2 if is_repeated else copies, "rule:queries, and what was one product with them"),
        "key_copies": given(2 if is_repeated else 0, "rule:keys and values, where they are repeated for all heads"),
        **_scores(facts, setting, block),
        "score_bits": given(score_bits, "rule:scores before, within and after the softmax"),
    }  # fmt: skip


def _is_grouped(facts: ModelFacts) -> bool:
    return known(facts.kv_heads) is not None and facts.kv_heads.value != facts.attention_heads.value


def _is_math(facts: ModelFacts, setting: Setting) -> bool:
    """Whether float32 with grouped heads is left to plain products: where a mask is needed, transformers repeats the heads, and a fused kernel runs."""
    windows = [tensor.window_tokens for layer in facts.layer_plan or () for tensor in layer.tensors]
    is_unmasked = not windows or any(window is None or window >= setting.prompt_tokens.value for window in windows)
    return setting.dtype_bits.value == _FLOAT_BITS and _is_grouped(facts) and is_unmasked


def _has_position_bias(block: Block | None) -> bool:
    return block is not None and block.encoder_mixer == "t5_self_attention"
