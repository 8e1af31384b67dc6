"""Chunks of tokens of the losses that are computed in parts: the libraries' own arithmetic."""

from __future__ import annotations

import pytest

from hubaudit.estimate.component import given
from hubaudit.estimate.training.losses import chunk_tokens


@pytest.mark.parametrize(("batch_size", "sequence_tokens"), [(1, 1001), (1, 1000), (4, 1001), (1, 7), (3, 8)])
def test_an_eighth_of_every_sequence(batch_size: int, sequence_tokens: int) -> None:
    """pytorch/torchtune@10ff7cd2 torchtune/modules/loss/ce_chunked_output_loss.py: num_output_chunks = 8, labels.tensor_split(8, dim=1).

    So does chunked_output of torchtune/modules/transformer.py (@0078c31b) with the stream. numpy's array_split, which tensor_split follows, gives the
    first sequence_tokens % 8 pieces a token more.
    """
    pieces = [sequence_tokens // 8 + (at < sequence_tokens % 8) for at in range(8)]
    assert sum(pieces) == sequence_tokens
    sizes = {"tokens": batch_size * sequence_tokens, "sequence_tokens": sequence_tokens}
    inputs = {name: given(size, "test") for name, size in sizes.items()}
    assert chunk_tokens("chunked", inputs).value == batch_size * max(pieces)


@pytest.mark.parametrize(
    ("tokens", "vocab_size", "hidden_size", "expected"),
    [(1001, 32_000, 4096, 128), (4096, 32_000, 4096, 512), (4096, 151_936, 896, 32), (3, 4096, 4096, 3)],
)
def test_chunks_as_large_as_the_stream(tokens: int, vocab_size: int, hidden_size: int, expected: int) -> None:
    """linkedin/Liger-Kernel@00eba634 src/liger_kernel/ops/fused_linear_cross_entropy.py, fused_linear_cross_entropy_forward.

    With its default chunk_mem_const of 1: next_power_of_2(cdiv(BT, cdiv(V, H))) tokens, and no more than there are.
    """
    sizes = {"tokens": tokens, "vocab_size": vocab_size, "hidden_size": hidden_size}
    assert chunk_tokens("fused", {name: given(size, "test") for name, size in sizes.items()}).value == expected
