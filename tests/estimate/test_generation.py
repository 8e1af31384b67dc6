"""Phases of a run under transformers: published measurements of whole runs, and laws of phases."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixture_models import NAMES, facts_of, made

from hubaudit.errors import UsageError
from hubaudit.estimate.infer import estimate
from hubaudit.facts.repository import understand
from hubaudit.types import Component, Estimate, ModelFacts, Workload

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "qwen_fit.tsv"
GIB = 2**30
PACKED = {"GPTQ-Int8": "gptq-int8", "GPTQ-Int4": "gptq", "AWQ": "awq"}
#: Geometry of the models that Qwen measured, from their config.json: hidden size, layers, heads, kv heads, MLP, vocabulary, tied.
QWEN = {
    "0.5B": (896, 24, 14, 2, 4864, 151936, True),
    "1.5B": (1536, 28, 12, 2, 8960, 151936, True),
    "3B": (2048, 36, 16, 2, 11008, 151936, True),
    "7B": (3584, 28, 28, 4, 18944, 152064, False),
    "14B": (5120, 48, 40, 8, 13824, 152064, False),
    "32B": (5120, 64, 40, 8, 27648, 152064, False),
}


def qwen(size: str) -> ModelFacts:
    """Qwen2 or Qwen2.5 of that size; the config says what its weights are."""
    hidden, layers, heads, kv_heads, inner, vocabulary, is_tied = QWEN[size]
    config: dict[str, Any] = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": inner, "vocab_size": vocabulary,
        "tie_word_embeddings": is_tied, "max_position_embeddings": 32768, "torch_dtype": "bfloat16", "use_sliding_window": False,
        "hidden_act": "silu", "rms_norm_eps": 1e-6,
    }  # fmt: skip
    return understand(made(config))


def in_torch(found: Estimate) -> int:
    """What torch's allocator counts: everything but the CUDA context."""
    return found.total_bytes - part(found, "cuda_context").bytes


def part(found: Estimate, name: str) -> Component:
    """The component of that id."""
    return next(item for item in found.components if item.id == name)


def rows() -> list[dict[str, str]]:
    """Qwen's own tables: an A100, FlashAttention 2, 2,048 new tokens; Qwen2 under transformers 4.38.2, Qwen2.5 under 4.46.0."""
    if not MEASURED.exists():
        return []
    with MEASURED.open(encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream, delimiter="\t") if row["n_gpu"] == "1"]


def peak(row: dict[str, str]) -> float:
    """The peak in GiB for a row of the table."""
    family, size = row["model"].removeprefix("Qwen/").removesuffix("-Instruct").split("-")
    version = {"Qwen2": "4.38", "Qwen2.5": "4.46"}[family]
    workload = Workload(
        prompt_tokens=int(row["input_tokens"]), new_tokens=2048, attention="flash", runtime_version=version
    )
    return in_torch(estimate(qwen(size), workload)) / GIB


@pytest.mark.skipif(not rows(), reason="the measurements are not here")
def test_the_published_peaks_of_qwen() -> None:
    """Qwen2.5 within 1 % or 0.05 GiB in every row on one GPU, Qwen2 (logits of the whole prompt) within 3 %; nothing is fitted to a model."""
    for row in rows():
        measured, ours = float(row["measured_GiB"]), peak(row)
        if "Qwen2.5" in row["model"]:
            assert abs(ours - measured) <= max(0.01 * measured, 0.05), (row, ours)
        else:
            assert abs(ours - measured) <= 0.03 * measured, (row, ours)


def quantized_rows() -> list[dict[str, str]]:
    """The same tables for GPTQ and AWQ. Rows of AWQ at one prompt token are left out: they are above those of 6,144 tokens, or beside them."""
    path = MEASURED.with_name("figures.tsv")
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as stream:
        found = [row for row in csv.DictReader(stream, delimiter="\t") if row["kind"] == "peak inference memory"]
    return [
        row
        for row in found
        if re.fullmatch(r"Qwen/Qwen2(\.5)?-[\d.]+B-Instruct", row["model"])
        and row["dtype_quant"] in PACKED
        and "n_gpu=1;" in row["settings"]
        and not (row["dtype_quant"] == "AWQ" and "input_tokens=1;" in row["settings"])
    ]


@pytest.mark.skipif(not quantized_rows(), reason="the measurements are not here")
def test_the_published_peaks_of_quantized_checkpoints() -> None:
    """GPTQ in 8 and 4 bit and AWQ, made of the plain model's config: within 3 % or 0.05 GiB of what Qwen measured of the real checkpoints."""
    for row in quantized_rows():
        family, size = row["model"].removeprefix("Qwen/").removesuffix("-Instruct").split("-")
        if size not in QWEN:
            continue
        tokens = re.search(r"input_tokens=(\d+)", row["settings"])
        assert tokens is not None
        workload = Workload(
            prompt_tokens=int(tokens[1]), new_tokens=2048, attention="flash", dtype="fp16", quant=PACKED[row["dtype_quant"]],
            runtime_version={"Qwen2": "4.38", "Qwen2.5": "4.46"}[family],
        )  # fmt: skip
        measured, ours = float(row["figure"]), in_torch(estimate(qwen(size), workload)) / GIB
        assert abs(ours - measured) <= max(0.03 * measured, 0.05), (row, ours)


def test_logits_of_the_whole_prompt_were_most_of_it() -> None:
    """Qwen2-0.5B at 30,720 tokens: 27.61 GiB under transformers 4.38.2, 2.34 GiB for the same geometry under 4.46.0 (Qwen's tables)."""
    facts = qwen("0.5B")
    asked = Workload(prompt_tokens=30720, new_tokens=2048, attention="flash", runtime_version="4.38.2")
    old, new = (in_torch(estimate(facts, replace(asked, runtime_version=name))) for name in ("4.38.2", "4.46.0"))
    assert old / GIB == pytest.approx(27.61, rel=0.005)
    assert new / GIB == pytest.approx(2.34, rel=0.01)


def test_logits_of_the_whole_prompt_are_gone_with_it() -> None:
    """Release 4.38.2 of transformers makes them in the forward pass over the prompt, at least two bytes for each token and word; the next pass has one token."""
    asked = Workload(prompt_tokens=30720, new_tokens=2048, attention="flash", runtime_version="4.38.2")
    phases = {one.name: one.bytes for one in estimate(qwen("0.5B"), asked).phases}
    assert phases["prefill"] - phases["decode"] > 2 * 30_720 * 151_936


def test_rests_of_a_mebibyte_stay_with_their_blocks() -> None:
    """Qwen2.5-3B: each of 108 MLP matrices is 43 MiB and gets 44: 5.95 GiB at one prompt token, not 5.82; unless one block is there for all of them."""
    facts = qwen("3B")
    found = estimate(facts, Workload(prompt_tokens=1, new_tokens=2048, runtime_version="4.46"))
    told = part(found, "block_remainders")
    assert 108 * 2**20 <= told.bytes == told.low_bytes < 109 * 2**20
    assert in_torch(found) / GIB == pytest.approx(5.95, abs=0.02)
    warmed = part(estimate(facts, Workload(prompt_tokens=1, new_tokens=2048)), "block_remainders")
    assert warmed.low_bytes < 2**20 < warmed.bytes == told.bytes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", [None, "4.38"])
def test_the_total_is_that_of_the_worst_phase(name: str, version: str | None) -> None:
    """The components are those of the peak, no phase has more, and the peak is one of the phases."""
    if facts_of(name).format == "gguf":
        pytest.skip("llama.cpp has no phases")
    found = estimate(facts_of(name), Workload(prompt_tokens=300, new_tokens=20, runtime_version=version))
    sizes = {phase.name: phase.bytes for phase in found.phases}
    assert found.total_bytes == sum(item.bytes for item in found.components) == max(sizes.values())
    assert sizes[str(found.peak_phase)] == found.total_bytes
    assert found.low_bytes <= found.total_bytes <= found.high_bytes
    assert set(sizes) <= {"load", "prefill", "forward", "decode"}


def test_a_short_prompt_peaks_while_it_writes_and_a_long_one_while_it_reads() -> None:
    """One prompt token and 30,000 new ones against 30,000 prompt tokens and one new one."""
    facts = qwen("7B")
    assert estimate(facts, Workload(prompt_tokens=1, new_tokens=30000)).peak_phase == "decode"
    assert estimate(facts, Workload(prompt_tokens=30000, new_tokens=1)).peak_phase == "prefill"


def test_a_sliding_window_keeps_the_whole_prompt_until_the_next_token() -> None:
    """Gemma-2: half of its layers keep 4,096 tokens, but what they hold after the prompt is a view of all 8,000."""
    facts = facts_of("gemma-2-2b-it")
    found = estimate(facts, Workload(prompt_tokens=8000, new_tokens=64))
    assert found.peak_phase == "prefill"
    assert part(found, "kv_cache").bytes == 2 * 26 * 4 * 256 * 8000 * 2


def test_beams_are_sequences_from_the_first_token_on() -> None:
    """generate() repeats the prompt for each beam before it is read: three beams of two prompts are six sequences."""
    facts = qwen("1.5B")
    asked = Workload(prompt_tokens=500, new_tokens=500)
    beams = estimate(facts, replace(asked, batch_size=2, num_beams=3, num_return_sequences=2))
    assert beams.total_bytes == estimate(facts, replace(asked, batch_size=6)).total_bytes
    returned = estimate(facts, replace(asked, num_return_sequences=4))
    assert returned.total_bytes == estimate(facts, replace(asked, batch_size=4)).total_bytes


def test_four_bit_layers_unpack_the_largest_matrix() -> None:
    """Beyond a few tokens a 4-bit layer unpacks its weight into the compute dtype: float32 unless it is said, 4 × 3,584 × 18,944 bytes here."""
    facts = qwen("7B")
    asked = Workload(quant="nf4", prompt_tokens=100, new_tokens=10)
    inputs = part(estimate(facts, asked), "dequantization").inputs
    assert inputs["largest_elements"] * inputs["compute_bits"] // 8 == 4 * 3584 * 18944
    halved = part(estimate(facts, replace(asked, bnb_4bit_compute_dtype="bfloat16")), "dequantization")
    assert halved.inputs["compute_bits"] == 16
    assert halved.bytes < part(estimate(facts, asked), "dequantization").bytes // 2


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Workload(runtime_version="3.0"), "older"),
        (Workload(runtime_version="latest"), "no version"),
        (Workload(runtime_version="0.9", runtime="vllm"), "older|told apart"),
        (Workload(num_beams=2, num_return_sequences=3), "beams give no"),
        (Workload(num_beams=2, runtime="vllm"), "transformers"),
        (Workload(num_beams=0), "at least 1"),
    ],
)
def test_what_does_not_exist_is_refused(workload: Workload, words: str) -> None:
    """Releases that are not described and beams that give too few sequences."""
    with pytest.raises(UsageError, match=words):
        estimate(qwen("0.5B"), workload)


@pytest.mark.parametrize(
    ("name", "traced_bytes"),
    # fixtures/exact/peaks.jsonl: transformers' own forward pass of 512 tokens, traced, in float32
    [("bert-base-uncased", 514830848), ("roberta-base", 615753216)],
)
def test_a_masked_language_model_scores_every_token(name: str, traced_bytes: int) -> None:
    """Its pass peaks at the head, with a score for each word of the vocabulary at each token."""
    found = estimate(facts_of(name), Workload(prompt_tokens=512, new_tokens=0))
    assert in_torch(found) == pytest.approx(traced_bytes, rel=0.01)


def test_an_encoder_without_that_head_has_no_scores() -> None:
    """A class for sentences or labels makes no score of words."""
    found = estimate(facts_of("all-minilm-l6-v2"), Workload(prompt_tokens=512, new_tokens=0))
    assert "logits" not in {item.id for item in found.components}


def test_positions_and_masks_are_counted_as_generate_makes_them() -> None:
    """Storages of a small Qwen2-MoE in eager attention (fixtures/measured/cpu.jsonl): a mask for sliding layers that it does not have, all positions."""
    lines = (Path(__file__).parents[2] / "fixtures" / "measured" / "cpu.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines if '"qwen2_moe"' in line]
    found = [one for one in records if one["workload"]["mode"] == "infer" and not one["workload"].get("quant")]
    assert len(found) == 1
    outside = ("cuda_context", "workspace", "block_remainders")
    asked = Workload(**{name: value for name, value in found[0]["workload"].items() if not isinstance(value, list)})
    made_of = estimate(understand(made(found[0]["config"])), asked).components
    measured = next(one["measured_bytes"] for one in found[0]["figures"] if one["id"] == "max_allocated")
    assert sum(one.bytes for one in made_of if one.id not in outside) == pytest.approx(measured, rel=0.01)
