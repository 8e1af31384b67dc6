"""What attention over keys and values keeps for its backward pass under each kernel, and what that pass holds beside, as amounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.training.amounts import Amount
from hubaudit.estimate.training.kept_inputs import norm_saved, ranks_saved, shared_input

if TYPE_CHECKING:
    from hubaudit.estimate.training.block import Block
    from hubaudit.estimate.training.flow import Flow
    from hubaudit.estimate.training.lora import Targets

_FLOAT = 4
_HIDDEN = "hidden_size"
#: Kernels of plain products; a single head of keys of a single sequence is not copied for all heads.
MATH = ("math", "math_single_key")


def attention_saved(block: Block, flow: Flow, kernel: str, targets: Targets) -> Amount:
    """Queries, keys, values, result and what the kernel keeps; and what the matrices keep of their inputs."""
    inner = flow.inner
    inputs = shared_input(flow, _HIDDEN, targets.attention_in, 1 if "qkv" in block.fused else 3, flow.stream)
    query, key = ("tokens", "query_size"), ("tokens", "key_size")
    scores = ("tokens", "sequence_tokens", "attention_heads")
    result_kept = kernel in ("flash", "efficient")
    if kernel == "flash":
        saved = (
            Amount.of(2 * inner, *query) + Amount.of(2 * inner, *key) + Amount.of(_FLOAT, "tokens", "attention_heads")
        )
    elif kernel == "efficient":
        saved = Amount.of(4 * inner, *query) + Amount.of(_FLOAT, "tokens", "attention_heads")
    elif kernel in MATH:
        of_keys = key if kernel == "math_single_key" else query
        saved = Amount.of(_FLOAT, *query) + Amount.of(2 * _FLOAT, *of_keys) + Amount.of(_FLOAT, *scores)
    else:
        saved = Amount.of(3 * inner, *query) + Amount.of(score_bytes(block, flow), *scores)
    saved += _copies(block, flow, kernel)
    if block.qk_norm:
        saved += norm_saved(block, flow, "query_size", "attention_heads") + norm_saved(
            block, flow, "key_size", "kv_heads"
        )
    if block.gated_attention:
        saved += Amount.of(2 * inner if flow.is_trained else inner, *query)
    out = shared_input(flow, "query_size", targets.attention_out, 1, inner, is_kept=result_kept)
    return inputs + saved + out + ranks_saved(flow, targets.attention_in + targets.attention_out)


def _copies(block: Block, flow: Flow, kernel: str) -> Amount:
    """Copies and views of queries, keys, values and the result that the model's own way of making them costs."""
    inner = flow.inner
    query, key = ("tokens", "query_size"), ("tokens", "key_size")
    made = Amount()
    if kernel == "flash" and block.rope == "cat" and flow.is_trained:
        made += Amount.of(inner, *query)
    if block.cached and kernel != "eager":
        made += Amount.of(2 * inner, *key)
    return made


def cache_copies(block: Block, flow: Flow) -> Amount:
    """Under autocast rotary positions are float32 and make keys so, and the cache makes values as wide as keys; attention reads casts."""
    if not flow.casts or block.rope == "none":
        return Amount()
    return Amount.of(2 * _FLOAT, "tokens", "key_size")


def _softmax_bytes(block: Block, flow: Flow) -> int:
    """One value of the softmax of plain scores: float32 unless the model's own code says otherwise."""
    return flow.inner if block.softmax_is_native else max(_FLOAT, flow.inner)


def score_bytes(block: Block, flow: Flow) -> int:
    """What plain attention keeps of a pair of tokens: the softmax, what the product with the values reads, and the results of a bound and of dropout."""
    softmax = _softmax_bytes(block, flow)
    read = flow.inner if softmax != flow.inner or block.attention_dropout else 0
    mask = 1 if block.attention_dropout else 0
    return softmax + read + mask + (flow.inner if block.softcap else 0)


def _score_temporary(block: Block, flow: Flow) -> int:
    """The most that plain attention's backward pass holds of a pair beside that.

    In the product with the values, what was kept and its gradient; in dropout two gradients without what the product read; in the softmax its result, two gradients and their
    product (torch 2.13.0 aten/src/ATen/native/cuda/SoftMax.cu).
    """
    kept, softmax, inner = score_bytes(block, flow), _softmax_bytes(block, flow), flow.inner
    bound = inner if block.softcap else 0
    dropped = softmax + 1 + 2 * inner + bound if block.attention_dropout else 0
    return max(kept + inner, dropped, 4 * softmax + bound) - kept


def attention_temporary(block: Block, flow: Flow, kernel: str) -> Amount:
    """Gradients of queries, keys and values; where scores are kept, those of the scores and what the softmax needs for them."""
    made = Amount.of(flow.stream, "tokens", _HIDDEN)
    scores = ("tokens", "sequence_tokens", "attention_heads")
    if kernel == "flash":
        return (
            made
            + Amount.of(flow.inner + _FLOAT, "tokens", "query_size")
            + Amount.of(4 * flow.inner, "tokens", "key_size")
        )
    if kernel == "efficient":
        return made + Amount.of(3 * flow.inner + _FLOAT, "tokens", "query_size")
    beside = 3 * _FLOAT if kernel in MATH else _score_temporary(block, flow)
    return made + Amount.of(beside, *scores) + Amount.of(flow.inner, "tokens", "query_size")
