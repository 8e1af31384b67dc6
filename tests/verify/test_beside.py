"""Measured figures beside those by formula, and as text."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from measured_runs import CONFIG, RESULT, WORKLOAD, measurement, out_of_memory

from hubaudit.auditing import audit_facts
from hubaudit.exact.device import blas_policy, device_of_capability
from hubaudit.exact.events import Alloc, BlasCall, Free, Mark, Scratch, Trace, from_rows
from hubaudit.exact.replay import replay
from hubaudit.facts.repository import understand
from hubaudit.types import RepoSnapshot
from hubaudit.verify.beside import _Exact, compared, components_of, formula_component, formula_peaks, tensors_only
from hubaudit.verify.job import Job
from hubaudit.verify.measurement import percent
from hubaudit.verify.table import compare_text, slope_text, to_text

_FIXTURE = Path(__file__).parents[2] / "fixtures" / "exact" / "twelve_linears.json.gz"
_SNAPSHOT = RepoSnapshot(
    repo_id="org/name", revision=None, commit=None, source="local", configs={"config.json": CONFIG}
)
_FACTS = understand(_SNAPSHOT)
_REPORT = audit_facts(_SNAPSHOT, _FACTS, WORKLOAD)


def test_the_peak_is_that_of_the_workload_itself() -> None:
    """Not of its repetitions; the cache counts every token that was fed: 2 layers x 2 x 2 heads x 16 x 19 tokens x 2 sequences."""
    made = compared(_REPORT, _FACTS, Job(config=CONFIG, workload=WORKLOAD, device="cpu"), RESULT)
    figures = {one.id: one for one in made.figures}
    assert figures["max_allocated"].measured_bytes == 250_000
    assert figures["kv_cache"].formula_bytes == 2 * 2 * (2 * 16) * 19 * 2 * 2
    assert figures["kv_cache"].formula_error == 0
    assert "logits" not in figures
    assert made.exact_reason == "not asked for"
    assert made.leak_bytes is None


def test_a_processor_has_no_context_and_no_workspaces() -> None:
    """What CUDA alone takes is in no figure of the CPU; on CUDA the context is still outside its allocator."""
    parts = {part.id: part.bytes for part in _REPORT.estimate.components}
    assert formula_peaks(_REPORT, "cuda")[1] == sum(parts.values()) - parts["cuda_context"]
    of_cuda = ("cuda_context", "workspace", "block_remainders")
    assert formula_peaks(_REPORT, "cpu")[1] == sum(parts.values()) - sum(parts[name] for name in of_cuda)
    assert formula_component(_REPORT, _FACTS, "adapters") is None


def test_what_is_loaded_is_weights_and_the_tables_that_the_class_makes() -> None:
    """A model once loaded holds both: GPT-Neo's two masks of 64 x 64 bool are in the figure beside the measured one, in both estimates."""
    config = {
        "model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "num_layers": 2, "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 64, "hidden_size": 32, "num_heads": 2, "vocab_size": 100, "intermediate_size": 64,
    }  # fmt: skip
    snapshot = replace(_SNAPSHOT, configs={"config.json": config})
    facts = understand(snapshot)
    report = audit_facts(snapshot, facts, WORKLOAD)
    parts = {part.id: part.bytes for part in report.estimate.components}
    assert parts["buffers"] == 2 * 64 * 64
    assert formula_component(report, facts, "weights") == parts["weights"] + parts["buffers"]
    exact = _Exact(components={"weights": 1_000, "buffers": 24, "kv_cache": 7})
    made = compared(report, facts, Job(config=config, workload=WORKLOAD, device="cpu"), RESULT, exact)
    assert {one.id: one.exact_bytes for one in made.figures}["weights"] == 1_024


def test_tables_alone_are_no_weights() -> None:
    """Where the weights are not known, neither is their sum with the tables."""
    lacking = tuple(part for part in _REPORT.estimate.components if part.id != "weights")
    tables = replace(_REPORT.estimate.components[0], id="buffers")
    report = replace(_REPORT, estimate=replace(_REPORT.estimate, components=(*lacking, tables)))
    assert formula_component(report, _FACTS, "weights") is None


def test_tensors_only_leaves_kernels_out() -> None:
    """Scratch and workspaces go, storages stay, and each component counts what lived at the end of a phase."""
    events = (Alloc(0, 1000, "a"), BlasCall("cublas", False), Scratch((1 << 20,), "b"), Alloc(1, 600, "c"), Mark("one"))
    trace = Trace((*events, Free(1), Mark("two")), {0: "weights", 1: "kv_cache"})
    assert tensors_only(trace).peak_allocated_bytes == 1024 + 1024
    assert components_of(trace) == {"weights": 1000, "kv_cache": 600}


def test_the_twelve_linears_lose_their_workspaces_only() -> None:
    """A real trace: nothing but scratch and workspaces is lost, and the largest of these are the 8.125 MiB of cuBLAS on each thread."""
    trace = from_rows(json.loads(gzip.decompress(_FIXTURE.read_bytes()))["foreach"])
    whole = replay(trace, blas_policy("2.13", device_of_capability("8.0")))
    lost = whole.peak_allocated_bytes - tensors_only(trace).peak_allocated_bytes
    assert 0 <= lost <= 2 * 8_519_680


def test_errors_are_in_percent_of_what_was_measured() -> None:
    """Too much is positive; without a figure there is none."""
    assert percent(102, 100) == pytest.approx(2)
    assert percent(50, 100) == -50
    assert percent(None, 100) is None
    assert percent(5, 0) is None


def test_the_text_fits_80_columns_and_names_everything() -> None:
    """Errors with their sign, the cache's use, the leak, and what is not compared."""
    text = to_text(measurement())
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        "+2.00 %",
        "-0.50 %",
        "25.0 % of them in use",
        "run 4 times: grew by at least 10 B",
        "why not",
        "lower bound",
    ):
        assert words in " ".join(text.split())


def test_rest_without_growth_is_no_leak() -> None:
    """One repetition that did not grow is enough."""
    assert measurement(rests=(1, 5, 5, 6)).leak_bytes == 0
    assert "no leak" in to_text(measurement(rests=(1, 5, 5, 6)))


def test_two_batches_give_a_slope() -> None:
    """Bytes for each further sequence, on each side."""
    one = measurement()
    figures = tuple(
        replace(figure, measured_bytes=(figure.measured_bytes or 0) + 200, formula_bytes=1220, exact_bytes=1215)
        for figure in one.figures
    )
    text = slope_text(one, replace(one, workload=replace(WORKLOAD, batch_size=4), figures=figures))
    row = next(line for line in text.splitlines() if line.startswith("max allocated"))
    assert row.split() == ["max", "allocated", "100", "B", "110", "B", "+10.00", "%", "100", "B", "+0.00", "%"]


def test_a_comparison_keeps_the_row_that_failed() -> None:
    """With its reason below."""
    text = compare_text([("bf16", measurement()), ("int8", out_of_memory())])
    assert [line.split()[0] for line in text.splitlines()[1:3]] == ["bf16", "int8"]
    assert "- int8: out of memory on cuda" in text
