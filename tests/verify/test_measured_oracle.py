"""Small models of every kind run with data on the CPU: what is measured, exact mode's figure and the formula's agree, each difference from a cause.

Eager attention, so that the CPU takes the kernel that CUDA would. Exact mode is then equal to the byte at every mark, but for

- ``generate``: the beginning and padding words that it turns into tensors of 8 bytes (two blocks of 512), which are made unseen on tensors
  without data; and the last mask, which ends in another block;
- experts while decoding: transformers takes another product on CUDA than on the CPU (`batched_mm`), so only the prompt is compared;
- adapters while they are made: PEFT draws their values, which takes a copy of one;
- a few numbers for each token that lie in reference cycles until Python's collector comes by, as it does now and then: not more than the
  prompt's own numbers, 8 bytes a token.
"""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import ROOT

if TYPE_CHECKING:
    from types import ModuleType

# The libraries' own deprecations are no concern of a measurement.
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
for _library in ("torch", "transformers", "peft", "bitsandbytes", "accelerate"):
    pytest.importorskip(_library)

_BLOCK = 512
_WORDS = 2 * _BLOCK
_LAST_MASK = _BLOCK
_CYCLES = 8 * 2 * 128


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_tool", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CPU = _tool("cpu_records")


def _recorded(model: str, name: str) -> dict[str, int]:
    """The figures of a record, which lies where the tool writes it."""
    lines = CPU.OUT.read_text(encoding="utf-8").splitlines()
    record: dict[str, Any] = json.loads(lines[CPU.RECORDED.index((model, name))])
    assert record["subject"]["repo_id"] == f"small {model}"
    return {row["id"]: row["measured_bytes"] for row in record["figures"]}


def _same(made: Any, told: dict[str, int]) -> None:
    """Every figure; peaks within what reference cycles may hold."""
    found = {figure.id: figure.measured_bytes for figure in made.figures}
    assert found.keys() == told.keys()
    for name, size in told.items():
        assert abs(found[name] - size) <= (_CYCLES if name == "max_allocated" else 0), name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("dense", "train"),
        ("dense", "lora"),
        ("dense", "qlora"),
        ("mixture", "generate"),
        ("encoder-decoder", "train"),
        ("mamba", "generate"),
    ],
)
def test_measured_exact_and_formula(model: str, name: str) -> None:
    """Exact within the blocks named above at every mark; components as the formula has them, but for the rounding of their tensors."""
    made = CPU.measured(model, CPU.workload(name))
    assert made.exact_reason is None
    slack = _CYCLES + (_WORDS + _LAST_MASK if made.workload.mode == "infer" else 0)
    for phase in made.phases:
        if phase.name == "adapters" or (model == "mixture" and phase.name == "decode"):
            continue
        assert phase.exact_peak_allocated_bytes is not None
        assert abs(phase.peak_allocated_bytes - phase.exact_peak_allocated_bytes) <= slack, phase
    for figure in made.figures:
        if figure.id in ("weights", "adapters", "kv_cache"):
            assert figure.measured_bytes == figure.exact_bytes, figure
            assert figure.formula_error == pytest.approx(0, abs=0.5), figure


@pytest.mark.parametrize(("model", "name"), [("dense", "generate"), ("mixture", "train")])
def test_the_records_are_still_what_is_measured(model: str, name: str) -> None:
    """A sample of fixtures/measured/cpu.jsonl, measured again: every figure is the same."""
    made = CPU.measured(model, CPU.workload(name), with_exact=False)
    _same(made, _recorded(model, name))


def test_the_child_process_measures_the_same() -> None:
    """In a process of its own, through the launcher, with repetitions that leave nothing behind."""
    from hubaudit.types import RepoSnapshot
    from hubaudit.verify.beside import Request, measure

    config = CPU.CONFIGS["dense"]
    snapshot = RepoSnapshot(repo_id="d", revision=None, commit=None, source="local", configs={"config.json": config})
    request = Request(device="cpu", repeats=2, with_exact=False, limit_seconds=300)
    made = measure(snapshot, CPU.workload("generate"), request)
    _same(made, _recorded("dense", "generate"))
    assert made.leak_bytes == 0
    assert made.cache is not None
    assert made.cache.used_bytes == made.cache.held_bytes


def test_a_model_that_transformers_lacks_is_refused() -> None:
    """With the reason, by the child; code of a repository is never run."""
    from hubaudit.errors import CannotAuditError
    from hubaudit.verify.job import Job
    from hubaudit.verify.loading import load

    job = Job(
        config={"model_type": "not-there", "auto_map": {"AutoModel": "x.Y"}},
        workload=CPU.workload("generate"),
        device="cpu",
    )
    with pytest.raises(CannotAuditError, match="never runs a repository's own code"):
        load(job)


def test_memory_that_is_not_there_is_an_outcome() -> None:
    """A table of 10^13 words: the child says so, and in which phase."""
    from hubaudit.verify import child
    from hubaudit.verify.job import Job

    config = {**CPU.CONFIGS["dense"], "vocab_size": 10**13}
    outcome = child._outcome(Job(config=config, workload=CPU.workload("generate"), device="cpu"))
    assert outcome["outcome"] == "out_of_memory"
    assert outcome["environment"]["libraries"]["torch"]


def test_a_static_cache_is_held_whole_and_used_in_part() -> None:
    """Prompt and new words in tables sized ahead: less than all of it is used."""
    from dataclasses import replace

    made = CPU.measured("dense", replace(CPU.workload("generate"), cache="static"), with_exact=False)
    assert made.cache is not None
    assert made.cache.used_bytes is not None
    assert 0.9 < made.cache.used_bytes / made.cache.held_bytes < 1
    figure = made.figure("kv_cache")
    assert figure is not None
    assert figure.measured_bytes == made.cache.held_bytes


@pytest.mark.parametrize(
    "asked",
    [{"num_return_sequences": 2}, {"num_beams": 2}, {"cache": "static", "max_cache_len": 512}],
    ids=str,
)
def test_other_ways_to_generate(asked: dict[str, Any]) -> None:
    """Several samples, beams and a cache of a size of its own run as they are asked for, and exact mode says the same of them."""
    from dataclasses import replace

    made = CPU.measured("dense", replace(CPU.workload("generate"), **asked))
    peak = made.figure("max_allocated")
    assert peak is not None
    assert peak.measured_bytes == pytest.approx(peak.exact_bytes, abs=_WORDS + _LAST_MASK + _CYCLES)
