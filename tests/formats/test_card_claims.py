"""Claims of model cards: lines as real cards have them, and lines that are about something else.

The wordings are those of cards on the Hub (Qwen2.5, Llama 3.1, Phi-3, SmolLM2, Mistral), shortened.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.formats.card_claims import claims_of, dtype_named


def claims(card: str, name: str = "org/Tiny-1B") -> list[tuple[str, int, int, int, str | None]]:
    """Kind, bounds, line and dtype of each claim."""
    return [(one.kind, one.low, one.high, one.line, one.dtype) for one in claims_of(card, name)]


@pytest.mark.parametrize(
    ("line", "kind", "low", "high", "dtype"),
    [
        ("- Number of Parameters: 0.49B", "parameters", 490_000_000, 490_000_000, None),
        ("- Number of Parameters: 7.61B (6.53B non-embedding)", "parameters", 7_610_000_000, 7_610_000_000, None),
        ("**Parameters:** 494,032,768", "parameters", 494_032_768, 494_032_768, None),
        ("Tiny is a decoder with 1.7 billion parameters.", "parameters", 1_700_000_000, 1_700_000_000, None),
        ("This is the 3.8B parameters model.", "parameters", 3_800_000_000, 3_800_000_000, None),
        ("- Number of Activated Parameters: 3.3B", "active_parameters", 3_300_000_000, 3_300_000_000, None),
        ("- Context Length: Full 32,768 tokens", "context_tokens", 32_768, 32_768, None),
        ("- **Context length**: 128K", "context_tokens", 128_000, 131_072, None),
        ("It has a context window of 8k tokens.", "context_tokens", 8_000, 8_192, None),
        ("It supports a context window of 128K.", "context_tokens", 128_000, 131_072, None),
        ("Context length: 32,768.", "context_tokens", 32_768, 32_768, None),
        ("Context Length: 1M tokens", "context_tokens", 1_000_000, 1_048_576, None),
        ("Inference in bf16 needs at least 16 GB of VRAM.", "memory_bytes", 16 * 10**9, 16 * 10**9, "BF16"),
        ("VRAM: 6 GiB (4-bit)", "memory_bytes", 6 * 2**30, 6 * 2**30, "4 bits"),
        ("- Tensor type: BF16", "dtype", 0, 0, "BF16"),
        ("Precision: half", "dtype", 0, 0, "F16"),
    ],
)
def test_lines(line: str, kind: str, low: int, high: int, dtype: str | None) -> None:
    """One claim, with its line in the whole file and the precision that it is about."""
    assert claims(f"---\nlicense: mit\n---\n# T\n\n{line}\n") == [(kind, low, high, 6, dtype)]


@pytest.mark.parametrize(
    "text",
    [
        "Qwen2 comes in sizes ranging from 0.5 to 72 billion parameters.",
        "It outperforms Llama with 70B parameters.",
        "Compared to models with 7B parameters, it is small.",
        "- Number of Parameters (Non-Embedding): 0.36B",
        "The family has 1B, 3B and 8B parameters.",
        "With YaRN, a context of 131,072 tokens is reached.",
        "The model was trained on 15 trillion tokens.",
        "Fine-tuning needs 80 GB of VRAM.",
        "Needs 16 GB of disk, and 32 GB of system RAM.",
        "Version 3.1 of 2024, 12 layers, 64 heads.",
        "```\ncontext length: 4096 tokens\n```",
        "<!-- context length: 4096 tokens -->",
        "<!--\n\n- Number of parameters: 3B\n\n-->",
        "<!-- hubaudit:begin -->\n70,000,000,000 parameters (BF16). Context: 99,999 tokens.\n<!-- hubaudit:end -->",
        "torch_dtype=torch.float16 or bfloat16",
        "| Precision | BF16, FP8 |",
    ],
)
def test_what_is_no_claim(text: str) -> None:
    """Other models, ranges, code, comments, our own section, and words that name several things at once."""
    assert claims(f"# T\n\n{text}\n") == []


def test_a_table_of_properties() -> None:
    """Two columns: what, and how much."""
    card = "| | |\n|---|---|\n| **Parameters** | 8B |\n| Context length | 131072 |\n| Data type | bfloat16 |\n"
    assert [(kind, low, line) for kind, low, _, line, _ in claims(card)] == [
        ("parameters", 8_000_000_000, 3), ("context_tokens", 131_072, 4), ("dtype", 0, 5),
    ]  # fmt: skip


def test_a_table_of_models() -> None:
    """Only the model's own row counts, by its name; a family without it says nothing of it."""
    card = "| Model | Params | Context |\n|:--|--:|--:|\n| Tiny-1B | 1.1B | 4K |\n| Big-70B | 70B | 128K |\n| [org/Tiny-1B](https://x) | 2B | 8K |\n"
    assert [(kind, low, line) for kind, low, _, line, _ in claims(card)] == [
        ("context_tokens", 4_000, 3), ("parameters", 1_100_000_000, 3), ("context_tokens", 8_000, 5), ("parameters", 2 * 10**9, 5),
    ]  # fmt: skip
    assert claims(card, "org/Other") == []


def test_a_table_of_precisions() -> None:
    """Rows of precisions are all the model's own."""
    card = "| Precision | VRAM |\n|---|---|\n| BF16 | 16 GB |\n| INT4 | 5.5 GB |\n"
    memory = [(low, dtype) for kind, low, _, _, dtype in claims(card) if kind == "memory_bytes"]
    assert memory == [(16 * 10**9, "BF16"), (5_500_000_000, "4 bits")]


def test_a_row_that_ends_early() -> None:
    """Its cells stand under the first heads, as browsers show them; so GitHub's flavour of Markdown has it ("Tables (extension)")."""
    card = "| Precision | VRAM | Notes |\n|---|---|---|\n| BF16 | 16 GB |\n| INT4 |\n"
    assert [low for kind, low, _, _, _ in claims(card) if kind == "memory_bytes"] == [16 * 10**9]


def test_a_table_with_a_column_for_each_model() -> None:
    """The column that bears the name."""
    card = "| | Tiny-1B | Big-70B |\n|---|---|---|\n| Parameters | 1B | 70B |\n"
    assert [low for _, low, _, _, _ in claims(card)] == [10**9]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bfloat16", "BF16"),
        ("FP16", "F16"),
        ("fp8", "8 bits"),
        ("8-bit", "8 bits"),
        ("q4_k_m", "4 bits"),
        ("fp16 or bf16", None),
        ("halfway", None),
        ("", None),
    ],
)
def test_dtypes(text: str, name: str | None) -> None:
    """One name, or none."""
    assert dtype_named(text) == name


@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    """No text makes it fail, and every claim stands on a line of the card."""
    lines = len(text.splitlines())
    assert all(1 <= one.line <= lines for one in claims_of(text, "a/b"))


def test_a_hostile_card_takes_no_time() -> None:
    """Long lines, many bars, unclosed everything: seconds would be a way to stop a batch."""
    import time

    started = time.process_time()
    for text in (
        "|" * 500_000,
        "context " * 100_000,
        "1" * 500_000,
        "<" * 300_000,
        "[" * 300_000,
        "needs " * 80_000,
        "|-" * 200_000 + "\n" + "|-" * 200_000,
        "k: " * 200_000,
    ):
        claims_of(f"{text}\n{text}", "a/b")
    assert time.process_time() - started < 10
