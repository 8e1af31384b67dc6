"""Logits and what makes a loss of them: bytes alive in the forward pass, kept for the backward one, and at its worst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.estimate.component import given
from hubaudit.estimate.training.amounts import Amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.estimate.component import Input
    from hubaudit.estimate.training.block import Block
    from hubaudit.estimate.training.flow import Flow
    from hubaudit.types import ModelFacts

_FLOAT = 4
_ELEMENT = ("tokens", "vocab_size")
#: Parts of a sequence whose losses torchtune takes one by one.
CHUNKS = 8
SOURCES = {
    "full": "transformers 5.23.0 loss/loss_utils.py, ForCausalLMLoss: float32 copy, log-softmax kept, two float32 gradients: 12 bytes a logit at the "
    "worst; equal to traces, and to measurements on an H100 and an RTX 3050 (Soup, 12.000)",
    "held": "as full, with the outputs object alive through backward: 14 bytes a logit in 16 bit, 16 in float32 (canifinetune, RTX 4080)",
    "native": "transformers 5.23.0 models/t5/modeling_t5.py and models/bert/modeling_bert.py, torch's CrossEntropyLoss of the logits without a float32 copy",
    "chunked": "pytorch/torchtune@10ff7cd2 torchtune/modules/loss/ce_chunked_output_loss.py, CEWithChunkedOutputLoss, and @0078c31b modules/transformer.py, "
    "chunked_output: eight chunks of every sequence, float32 copies one chunk at a time, log-softmax of all kept; then a gradient of the head for each chunk",
    "fused": "linkedin/Liger-Kernel@00eba634 src/liger_kernel/ops/fused_linear_cross_entropy.py: logits of a chunk of tokens at a time, gradients of the "
    "stream and of the head made in the forward pass, the head's added up in place",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """``forward`` is the most alive while the loss is computed, ``kept`` what the backward pass finds, ``backward`` the most while it begins."""

    forward: Amount
    kept: Amount
    backward: Amount
    source: str


def predicts_tokens(facts: ModelFacts) -> bool:
    """Whether the model ends in a distribution over its vocabulary."""
    name = facts.architecture or ""
    return facts.family == "decoder" or name.endswith(
        ("ForMaskedLM", "LMHeadModel", "ForPreTraining", "ForConditionalGeneration")
    )


def loss_of(name: str, block: Block, flow: Flow, *, trains_head: bool) -> Loss:
    """The loss of a language model over all tokens.

    Args:
        name: ``full``, ``held``, ``chunked`` or ``fused``.
        block: whether the model bounds its logits by a tanh, which keeps its result.
        flow: bytes of a logit.
        trains_head: the head's weight needs a gradient.
    """
    source = SOURCES[name]
    width = flow.head
    bounded = Amount.of(width, *_ELEMENT) if block.softcap else Amount()
    if name == "fused":
        return _fused(flow, source, trains_head=trains_head)
    if block.loss_is_native and name in ("full", "held"):
        return _native(flow, Amount.of(width if name == "held" else 0, *_ELEMENT))
    copy = Amount.of(_FLOAT if width < _FLOAT else 0, *_ELEMENT)
    kept = Amount.of(_FLOAT, *_ELEMENT) + bounded
    if name == "chunked":
        chunk = Amount.of(_FLOAT, "chunk_tokens", "vocab_size")
        logits = Amount.of(width, *_ELEMENT)
        return Loss(forward=kept + logits + chunk, kept=kept, backward=kept + chunk.times(2), source=source)
    held = Amount.of(width, *_ELEMENT) if name == "held" else Amount()
    return Loss(
        forward=Amount.of(width, *_ELEMENT) + copy + kept,
        kept=kept,
        backward=kept + Amount.of(2 * _FLOAT, *_ELEMENT) + held,
        source=source,
    )


def _native(flow: Flow, held: Amount) -> Loss:
    """Cross entropy of the logits as they are: under autocast the log-softmax is in 16 bit, and its float32 copy what the likelihood keeps."""
    width = flow.head
    copy = _FLOAT if flow.casts else 0
    kept = Amount.of(width + copy, *_ELEMENT)
    backward = Amount.of(width + 2 * copy if copy else 3 * width, *_ELEMENT)
    return Loss(
        forward=Amount.of(width, *_ELEMENT) + kept, kept=kept, backward=backward + held, source=SOURCES["native"]
    )


def _fused(flow: Flow, source: str, *, trains_head: bool) -> Loss:
    gradients = Amount.of(flow.stream, "tokens", "hidden_size")
    made = Amount.of(flow.head, "chunk_tokens", "vocab_size")
    if trains_head:
        gradients += Amount.of(flow.stream, "vocab_size", "hidden_size")
    if flow.casts:  # the head's transposed view is cast anew for each chunk
        made += Amount.of(flow.head, "vocab_size", "hidden_size")
    return Loss(forward=gradients + made, kept=gradients, backward=gradients, source=source)


def chunk_tokens(name: str, inputs: Mapping[str, Input]) -> Input:
    """Tokens of the largest chunk: an eighth of every sequence, or as many as make a chunk of logits as large as the stream (a power of two)."""
    tokens = inputs["tokens"].value
    if name != "fused":
        sequence = inputs["sequence_tokens"].value
        return given(
            tokens // sequence * -(-sequence // CHUNKS), f"batch size × (sequence tokens ÷ {CHUNKS}, rounded up)"
        )
    ratio = -(-inputs["vocab_size"].value // inputs["hidden_size"].value)
    return given(
        min(tokens, 1 << (-(-tokens // ratio) - 1).bit_length()), "tokens × hidden_size ÷ vocab_size, to a power of two"
    )
