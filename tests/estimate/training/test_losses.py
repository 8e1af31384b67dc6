"""Chunks of tokens of the losses that are computed in parts: the libraries' own arithmetic."""

from __future__ import annotations

import pytest

from hubaudit.estimate.component import given
from hubaudit.estimate.training.losses import chunk_tokens


@pytest.mark.parametrize(("tokens", "expected"), [(1001, 126), (1000, 125), (7, 1)])
def test_an_eighth_of_the_tokens(tokens: int, expected: int) -> None:
    """CEWithChunkedOutputLoss of torchtune (num_output_chunks = 8) calls torch.chunk, whose pieces are of the rounded-up size."""
    inputs = {"tokens": given(tokens, "test")}
    assert chunk_tokens("chunked", inputs).value == expected


@pytest.mark.parametrize(
    ("tokens", "vocab_size", "hidden_size", "expected"),
    [(1001, 32_000, 4096, 128), (4096, 32_000, 4096, 512), (4096, 151_936, 896, 32), (3, 4096, 4096, 3)],
)
def test_chunks_as_large_as_the_stream(tokens: int, vocab_size: int, hidden_size: int, expected: int) -> None:
    """Liger-Kernel, ops/fused_linear_cross_entropy.py: next_power_of_2(cdiv(BT, cdiv(V, H))) tokens, and no more than there are."""
    sizes = {"tokens": tokens, "vocab_size": vocab_size, "hidden_size": hidden_size}
    assert chunk_tokens("fused", {name: given(size, "test") for name, size in sizes.items()}).value == expected
