"""The layers of a model together: how many are kept as checkpoints, what scores cost, which layers have experts, which models have a loss over words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fixture_models import facts_of

from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.stack import Stack, scores, stack_of
from hubaudit.types import Workload

QWEN = "qwen2-0.5b-instruct"
BASE = Workload(mode="train", sequence_tokens=16, recipe="bf16")


def stack(name: str, **asked: object) -> Stack:
    """The layers of a fixture under a workload with this asked."""
    facts = facts_of(name)
    made = stack_of(facts, settle_training(facts, replace(BASE, **asked)))  # type: ignore[arg-type]
    assert isinstance(made, Stack)
    return made


@pytest.mark.parametrize("every", [1, 2, 5, 23, 24, 30])
def test_checkpoints_begin_every_so_many_layers(every: int) -> None:
    """Of Qwen2-0.5B's 24 layers number 0, n, 2n … are the first of a segment, whose input is kept.

    So NVIDIA/Megatron-LM@0034bda6 megatron/core/transformer/transformer_block.py, _checkpointed_forward with recompute_method "uniform".
    """
    made = stack(QWEN, gradient_checkpointing="full", checkpoint_every=every)
    assert made.inputs["checkpoints"].value == len(range(0, 24, every))


@pytest.mark.parametrize(
    ("name", "recipe", "expected"),
    [(QWEN, "bf16", 4 + 2), (QWEN, "fp32", 4), ("gpt2", "bf16", 2 + 1 + 2), ("gpt2", "fp32", 4 + 1 + 4)],
)
def test_scores_are_kept_in_the_width_that_the_softmax_has(name: str, recipe: str, expected: int) -> None:
    """eager_attention_forward of Qwen2 asks softmax for float32 and casts the result, which is no copy where it is float32; GPT-2's asks for nothing.

    GPT-2 drops (attn_pdrop = 0.1): softmax's backward needs its result, dropout's a mask of a byte, and the product after it what dropout left.
    """
    made = stack(name, attention="eager", recipe=recipe)
    assert made.kernel == "eager"
    pairs = 16 * 16 * {QWEN: 14, "gpt2": 12}[name]
    assert scores(made.block, made.flow, made.kernel).value(made.inputs) == expected * pairs


@pytest.mark.parametrize(("kernel", "expected"), [("math", 4), ("flash", 0), ("efficient", 0)])
def test_scores_of_torchs_own_kernels(kernel: str, expected: int) -> None:
    """One float32 softmax in the product by parts (_scaled_dot_product_attention_math computes 16 bit in float32), none in fused kernels."""
    made = stack(QWEN)
    assert scores(made.block, made.flow, kernel).value(made.inputs) == expected * 16 * 16 * 14


@pytest.mark.parametrize(("name", "dense"), [("mixtral-8x7b-v0.1", 0), ("deepseek-v2-lite", 1), ("llama-3.1-8b", 32)])
def test_which_layers_have_experts(name: str, dense: int) -> None:
    """All of Mixtral's, all of DeepSeek-V2-Lite's but the first (first_k_dense_replace = 1), none of Llama's."""
    made = stack(name)
    assert [layer.routed for layer in made.layers] == [at >= dense for at in range(len(made.layers))]


@pytest.mark.parametrize(
    ("name", "has_loss"), [("bert-base-uncased", True), ("t5-small", True), (QWEN, True), ("all-minilm-l6-v2", False)]
)
def test_who_predicts_words(name: str, *, has_loss: bool) -> None:
    """A masked language model and an encoder with a decoder do as decoders do; BertModel alone ends in its hidden states."""
    assert (stack(name).loss is not None) == has_loss


def test_gradients_of_a_chunk_are_those_of_a_whole() -> None:
    """Two float32 gradients of each logit beside its log-softmax, 12 bytes (12.000 on an H100, Soup): of all with the plain loss, of two of 16 tokens by chunks."""
    made = {name: stack(QWEN, loss=name) for name in ("full", "chunked")}
    found = {name: one.loss.backward.value(one.inputs) for name, one in made.items() if one.loss is not None}
    assert found == {"full": 12 * 16 * 151_936, "chunked": (4 * 16 + 8 * 2) * 151_936}
