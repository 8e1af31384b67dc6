"""Estimates against training runs that somebody else measured on a GPU. No constant of the estimator was fitted to any of them."""

from __future__ import annotations

import csv
import re
import tomllib
from typing import Any

import pytest
from fixture_models import ROOT

from hubaudit.estimate.modes import estimate
from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.states import standing
from hubaudit.estimate.training.tensors import elements_of
from hubaudit.facts.model import understand
from hubaudit.types import Estimate, ModelFacts, RepoSnapshot, Workload

GIB = 2**30
RTX4080 = tomllib.loads((ROOT / "fixtures" / "published" / "rtx4080.toml").read_text(encoding="utf-8"))
PEFT = tomllib.loads((ROOT / "fixtures" / "published" / "peft.toml").read_text(encoding="utf-8"))


def facts_from(config: dict[str, Any]) -> ModelFacts:
    """Facts of a model of which the config alone is known."""
    return understand(
        RepoSnapshot(repo_id="org/model", revision=None, commit=None, source="local", configs={"config.json": config})
    )


def workload_of(run: dict[str, Any]) -> Workload:
    """The run, as its runner made it."""
    is_quantized = run["method"] == "qlora"
    return Workload(
        mode="train",
        batch_size=run["batch_size"],
        sequence_tokens=run["sequence_tokens"],
        lora=run["rank"],
        lora_targets="q_proj,k_proj,v_proj,o_proj",
        optimizer=run["optimizer"],
        gradient_checkpointing="full" if run["gradient_checkpointing"] else None,
        loss="held",
        quant="nf4" if is_quantized else None,
        bnb_4bit_use_double_quant=is_quantized,
        bnb_4bit_compute_dtype="bfloat16" if is_quantized else None,
    )


def allocated_gib(made: Estimate) -> float:
    """What the caching allocator counts: all but the CUDA context."""
    return (made.total_bytes - sum(part.bytes for part in made.components if part.category == "Context")) / GIB


def _name(run: dict[str, Any]) -> str:
    return run["file"].rpartition("__")[2].removesuffix(".json")


@pytest.mark.parametrize("run", RTX4080["run"], ids=_name)
def test_rtx_4080_lora_and_qlora(run: dict[str, Any]) -> None:
    """The peak of max_memory_allocated within 1 % with checkpointing and within 2 % without."""
    made = estimate(facts_from(RTX4080["config"][run["model"]]), workload_of(run))
    assert not made.omitted
    within = 0.01 if run["gradient_checkpointing"] else 0.02
    assert allocated_gib(made) == pytest.approx(run["max_allocated_gib"], rel=within)


@pytest.mark.parametrize("run", RTX4080["run"], ids=_name)
def test_rtx_4080_weights(run: dict[str, Any]) -> None:
    """What is allocated after loading, and what adapters add, within 1 % (tensors there are rounded up to 512 bytes) and 8.2 MiB of cuBLAS."""
    made = estimate(facts_from(RTX4080["config"][run["model"]]), workload_of(run))
    parts = {part.id: part.bytes for part in made.components}
    after = run["allocated_after_lora_gib"] * GIB
    assert abs(parts["weights"] + parts["adapters"] - after) < 0.002 * after + 9 * 2**20
    gained = (run["allocated_after_lora_gib"] - run["allocated_after_load_gib"]) * GIB
    assert parts["adapters"] == pytest.approx(gained, abs=0.0002 * GIB)


@pytest.mark.parametrize("run", RTX4080["run"], ids=_name)
def test_a_peak_is_no_sum_of_peaks(run: dict[str, Any]) -> None:
    """The total is the largest phase, and less than all that any phase holds at its own worst."""
    made = estimate(facts_from(RTX4080["config"][run["model"]]), workload_of(run))
    assert made.total_bytes == max(phase.bytes for phase in made.phases)
    assert [phase.name for phase in made.phases] == ["load", "forward", "loss", "backward", "optimizer"]
    assert made.peak_phase == "backward"


@pytest.mark.parametrize("run", PEFT["run"], ids=lambda run: run["file"])
def test_peft_method_comparison(run: dict[str, Any]) -> None:
    """Trainable parameters exactly; weights, gradients and states within 60 MiB of the measured mean less the offset that all its runs share."""
    facts = facts_from(PEFT["config"])
    workload = Workload(
        mode="train",
        lora=run.get("rank"),
        lora_targets=run.get("targets"),
        lora_variant=run.get("variant"),
        recipe="bf16",
    )
    held = standing(facts, settle_training(facts, workload))
    assert held is not None
    assert elements_of(held.trained) == run["trainable"]
    states = sum(part.bytes for part in held.components)
    assert abs(run["mean_allocated_bytes"] - states - PEFT["offset_mib"] * 2**20) < 60 * 2**20


CORPUS = ROOT.parent / "shared" / "corpus" / "peft_identity.tsv"


def _corpus_runs() -> list[dict[str, str]]:
    """Rows of PEFT's method comparison that are full fine-tuning or a LoRA whose adapters' sizes say its kind; none without the corpus."""
    if not CORPUS.exists():
        return []
    with CORPUS.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    return [row for row in rows if re.search(r"peft=(LORA|FULL) ", row["settings"])]


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of published figures is not here")
@pytest.mark.parametrize("run", _corpus_runs(), ids=lambda run: run["run"])
def test_peft_identity_of_the_corpus(run: dict[str, str]) -> None:
    """Weights, gradients and states within 60 MiB of the measured mean less the offset, where our parameters are those that the run trained."""
    said = run["settings"]
    rank = re.search(r"r=(\d+) target", said)
    targets = ",".join(re.findall(r"'(\w+)'", said)) or None
    asked = {"lora": int(rank[1]), "lora_targets": targets} if rank else {}
    sizes = {}
    for variant in ("lora", "dora") if rank else (None,):
        held = standing(
            facts_from(PEFT["config"]),
            settle_training(
                facts_from(PEFT["config"]), Workload(mode="train", recipe="bf16", lora_variant=variant, **asked)
            ),  # type: ignore[arg-type]
        )
        assert held is not None
        sizes[elements_of(held.trained)] = sum(part.bytes for part in held.components)
    trained = int(run["trainable"])
    if trained not in sizes:
        pytest.skip("another kind of LoRA, with parameters of its own")
    assert abs(int(run["avg_allocated_bytes"]) - sizes[trained] - PEFT["offset_mib"] * 2**20) < 60 * 2**20


def _accuracy_tool() -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("accuracy_tool", ROOT / "tools" / "training_accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_other_programs_within_their_bands() -> None:
    """litgpt, torchtune, Unsloth and axolotl: within the bands that docs/accuracy.md names, or with a reason there; none is off by a quarter."""
    tool = _accuracy_tool()
    runs = tool.framework_runs()
    assert {run["framework"] for run in runs} == {"litgpt", "torchtune", "Unsloth", "axolotl"}
    for run in runs:
        assert tool.is_inside(run) or run.get("note"), run["name"]
        assert run["estimate_bytes"] == pytest.approx(run["bytes"], rel=0.25), run["name"]


def test_the_page_of_accuracy_has_them() -> None:
    """The rows of other programs in docs/accuracy.md are today's (python -m tools.accuracy writes them)."""
    assert _accuracy_tool().frameworks() in (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")


def test_the_table_of_accuracy_is_todays() -> None:
    """Regenerating docs/training-accuracy.md changes nothing (python tools/training_accuracy.py writes it)."""
    assert _accuracy_tool().page() == (ROOT / "docs" / "training-accuracy.md").read_text(encoding="utf-8")
