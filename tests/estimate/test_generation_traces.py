"""The inference peak against recorded traces of generate() of the real model code: beams, sampling, experts, scores, long prompts, scans."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from hubaudit.estimate.infer import estimate
from hubaudit.facts.repository import understand
from hubaudit.hub.bundle import read_bundle
from hubaudit.types import RepoSnapshot, Workload
from hubaudit.verify.beside import formula_peaks

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools import exact_accuracy
from tools.generation_traces import allocated_bytes, config_of, estimated, recorded, traced

ROWS = recorded()
REPLAYED = {
    row["family"]: row for row in exact_accuracy.recorded() if row["way"] == "generation" and "error" not in row
}
#: What is traced anew with the installed libraries: scores, experts that are copied for a new token, and a bias of positions.
SAMPLE = (
    ("qwen2-0.5b-instruct", "prompt"),
    ("t5-small", "prompt, eager"),
    ("gpt2", "prompt"),
    ("falcon-7b-instruct", "prompt, float32"),
)


def test_the_record_has_no_holes() -> None:
    """Every row is a trace, none an error."""
    assert ROWS
    assert not [key for key, row in ROWS.items() if "error" in row]


@pytest.mark.parametrize(("family", "case"), ROWS)
def test_the_peak_is_that_of_the_trace(family: str, case: str) -> None:
    """Within 1 % of the whole, and within 5 % or 1 MiB of what comes on top of the loaded weights."""
    row, ours = ROWS[family, case], allocated_bytes(estimated(family, case))
    assert ours == pytest.approx(row["peak_bytes"], rel=0.01)
    above = row["peak_bytes"] - row["load_bytes"]
    assert ours - row["load_bytes"] == pytest.approx(above, rel=0.05, abs=2**20)


@pytest.mark.oracle
@pytest.mark.parametrize(("family", "case"), SAMPLE)
def test_the_trace_is_what_was_recorded(family: str, case: str) -> None:
    """The same run again, to the byte."""
    row = ROWS[family, case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch")
        pytest.importorskip("transformers")
        made = traced(family, case)
    assert made == {name: row[name] for name in ("load_bytes", "prefill_bytes", "peak_bytes")}


@pytest.mark.parametrize(("family", "peak_bytes"), [("qwen2-0.5b-instruct", 243_100_386), ("gpt2", 165_628_650)])
def test_the_scores_of_beams_right_after_the_prompt(family: str, peak_bytes: int) -> None:
    """The case "beams" with one new token, traced as the others are but with one pass through the loop of _beam_search: within half a byte a logit."""
    config = config_of(family, "beams")
    snapshot = RepoSnapshot(repo_id=family, revision=None, commit=None, source="local", configs={"config.json": config})
    workload = Workload(dtype="bf16", batch_size=2, prompt_tokens=4, new_tokens=1, num_beams=4)
    ours = allocated_bytes(estimate(understand(snapshot), workload))
    assert ours == pytest.approx(peak_bytes, abs=2 * 4 * config["vocab_size"] // 2)


@pytest.mark.parametrize("family", REPLAYED)
def test_what_the_allocator_reports_is_told_within_half_a_percent(family: str) -> None:
    """Every family of fixtures whole, traced and replayed through the allocator (fixtures/exact/peaks.jsonl): blocks are counted, not tensors alone."""
    _, report = exact_accuracy.report_of(family, "generation")
    allocated, _ = formula_peaks(report, "cuda")
    assert allocated == pytest.approx(REPLAYED[family]["allocated_bytes"], rel=0.005)
    assert report.estimate.high_bytes > REPLAYED[family]["allocated_bytes"]


def test_a_small_model_with_a_short_prompt() -> None:
    """GPT-2 in bf16 at 400 tokens, replayed (torch 2.13, compute capability 8.0): 293,544,960 bytes, of which 6,429,184 are remainders of its weights' blocks."""
    snapshot = read_bundle(Path(__file__).parents[2] / "fixtures" / "bundles" / "gpt2.json.gz")
    asked = Workload(dtype="bf16", prompt_tokens=400, new_tokens=4)
    made = estimate(understand(snapshot), asked)
    allocated = made.total_bytes - sum(part.bytes for part in made.components if part.id == "cuda_context")
    assert allocated == pytest.approx(293_544_960, rel=0.005)
