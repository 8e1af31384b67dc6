"""Write the measured part of docs/accuracy.md: today's estimate beside every measurement that is kept, ours and cited ones, worst first.

`python -m tools.accuracy`. Measurements: fixtures/measured/*.jsonl (calibration records of `hubaudit verify`) and fixtures/published/*.toml.
The formula's figures are worked out anew each time; exact mode's are those of the record, as it needs torch, and so are its peaks of every family of
fixtures (fixtures/exact/peaks.jsonl, by tools/exact_accuracy.py).
"""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hubaudit.auditing import audit_facts
from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.states import standing
from hubaudit.facts.repository import understand
from hubaudit.types import RepoSnapshot, Workload
from hubaudit.verify.beside import MAX_ALLOCATED, MAX_RESERVED, formula_component, formula_peaks
from hubaudit.verify.record import read, workload_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
_SMALL = 0.1
_EXACT_KEYS = ("allocated_bytes", "reserved_bytes")
_WORDS = {MAX_ALLOCATED: "max allocated", MAX_RESERVED: "max reserved", "kv_cache": "cache"}


class Point(NamedTuple):
    """One measured figure beside the estimates of it, in bytes. ``lacks``: what the formula names as left out."""

    source: str
    run: str
    component: str
    measured: int
    formula: int | None
    exact: int | None
    lacks: tuple[str, ...] = ()

    @property
    def formula_error(self) -> float:
        """In percent of what was measured."""
        return 100 * ((self.formula or 0) / self.measured - 1)

    @property
    def exact_error(self) -> float | None:
        """In percent of what was measured."""
        return None if self.exact is None else 100 * (self.exact / self.measured - 1)


def points() -> list[Point]:
    """Every measurement that is kept, worst first by the formula."""
    found = [*_own(), *_rtx4080(), *_peft()]
    return sorted((one for one in found if one.formula is not None), key=lambda one: -abs(one.formula_error))


def _own() -> Iterator[Point]:
    for path in sorted((ROOT / "fixtures" / "measured").glob("*.jsonl")):
        for record in read(path):
            if record["outcome"] == "ok":
                yield from _of_record(record)


def _of_record(record: dict[str, Any]) -> Iterator[Point]:
    """Its figures, with the formula's of today. Reserved bytes of CPU runs are replayed, not measured, and stay out."""
    snapshot = _snapshot(record["config"], record["subject"]["repo_id"])
    facts = understand(snapshot)
    work = workload_of(record)
    report = audit_facts(snapshot, facts, work, with_variants=False)
    kind = record["device"]
    peaks = dict(zip((MAX_ALLOCATED, MAX_RESERVED), formula_peaks(report, kind), strict=True))
    source = "storages on the CPU" if kind == "cpu" else str(record["environment"]["device"])
    lacks = tuple(part.id for part in report.estimate.omitted)
    for row in record["figures"]:
        name, measured = row["id"], row["measured_bytes"]
        if not measured or (kind == "cpu" and name == MAX_RESERVED):
            continue
        formula = peaks[name] if name in peaks else formula_component(report, facts, name)
        run = f"{record['subject']['repo_id']}, {way(work)}"
        yield Point(source, run, name, measured, formula, row["exact_bytes"], lacks if name in peaks else ())


def way(work: Workload) -> str:
    """How the model was run, in few words."""
    words = [work.quant or (work.recipe if work.mode == "train" else work.dtype) or ""]
    if work.mode == "train":
        words += ["training", f"{work.batch_size} × {work.sequence_tokens}"]
        words += [f"LoRA {work.lora}"] if work.lora else []
        words += ["checkpointing"] if work.gradient_checkpointing else []
    else:
        words += ["generation" if work.new_tokens else "prefill", f"{work.batch_size} × {work.prompt_tokens}"]
    return " ".join(one for one in (*words, work.attention) if one)


def _rtx4080() -> Iterator[Point]:
    tool = _sibling("training_accuracy")
    for name, measured_gib, formula_gib, _ in tool.compared():
        yield Point("RTX 4080, cited", name, MAX_ALLOCATED, int(measured_gib * 2**30), int(formula_gib * 2**30), None)


def _peft() -> Iterator[Point]:
    """The mean of allocated bytes less the offset that all runs there share: weights, gradients and states."""
    published = tomllib.loads((ROOT / "fixtures" / "published" / "peft.toml").read_text(encoding="utf-8"))
    facts = understand(_snapshot(published["config"], "meta-llama/Llama-3.2-3B"))
    for run in published["run"]:
        work = Workload(
            mode="train",
            lora=run.get("rank"),
            lora_targets=run.get("targets"),
            lora_variant=run.get("variant"),
            recipe="bf16",
        )
        held = standing(facts, settle_training(facts, work))
        states = None if held is None else sum(part.bytes for part in held.components)
        measured = run["mean_allocated_bytes"] - published["offset_mib"] * 2**20
        name = run["file"].removesuffix(".json")
        yield Point("L40S, cited", name, "weights, gradients and states", measured, states, None)


def _snapshot(config: dict[str, Any], name: str) -> RepoSnapshot:
    return RepoSnapshot(repo_id=name, revision=None, commit=None, source="local", configs={"config.json": config})


def _sibling(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_for_accuracy", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page() -> str:
    """The whole page, its measured part made anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    others = _sibling("training_accuracy").frameworks()
    made = f"{measured_part(points())}{others}{exact_part(exact_points())}"
    return f"{before}{BEGIN}\n{made}{END}{rest.partition(END)[2]}"


def exact_points() -> list[Point]:
    """Exact mode's peaks of every family of fixtures beside today's formula, worst first; ``measured`` is what exact mode says."""
    tool = _sibling("exact_accuracy")
    found = []
    for row in tool.recorded():
        if "error" not in row:
            _, report = tool.report_of(row["family"], row["way"])
            formula = formula_peaks(report, "cuda")
            lacks = tuple(part.id for part in report.estimate.omitted if part.id != "cuda_context")
            for name, key, own in zip((MAX_ALLOCATED, MAX_RESERVED), _EXACT_KEYS, formula, strict=True):
                found.append(
                    Point("exact mode", f"{row['family']}, {row['way']}", name, row[key], own or None, row[key], lacks)
                )
    return sorted((one for one in found if one.formula is not None), key=lambda one: -abs(one.formula_error))


def exact_part(found: list[Point]) -> str:
    """The table of peaks of allocated and reserved bytes, and what exact mode does not run."""
    if not found:
        return ""
    parts = []
    for name in (MAX_ALLOCATED, MAX_RESERVED):
        own = [one for one in found if one.component == name]
        errors = sorted(abs(one.formula_error) for one in own if not one.lacks)
        parts.append(
            f"### {_WORDS[name]}, formula against exact mode: {len(own)} runs, off by {sum(errors) / len(errors):.2f} % on average, "
            f"{errors[len(errors) // 2]:.2f} % in the middle\n\n| figure | run | exact MiB | formula |\n|---|---|---:|---:|\n"
        )
        for one in own:
            note = " (a lower bound)" if one.lacks else ""
            parts.append(
                f"| {_WORDS[name]} exact | {one.run} | {one.measured / 2**20:.2f} | {one.formula_error:+.2f} %{note} |\n"
            )
        parts.append("\n")
    untold = [
        (row["family"], row["way"], row["error"]) for row in _sibling("exact_accuracy").recorded() if "error" in row
    ]
    for family, way_of_it, reason in untold:
        parts.append(f"- {family}, {way_of_it}: exact mode has no answer: {reason}\n")
    return "".join(parts) + ("\n" if untold else "")


def measured_part(found: list[Point]) -> str:
    """Tables by source, peaks first, each with its worst run first."""
    parts = []
    for source in dict.fromkeys(one.source for one in found):
        own = [one for one in found if one.source == source]
        peaks = [one for one in own if one.component in (MAX_ALLOCATED, MAX_RESERVED)]
        others = [one for one in own if one not in peaks]
        mean = sum(abs(one.formula_error) for one in own) / len(own)
        parts.append(f"### {source}: {len(own)} figures, formula off by {mean:.2f} % on average\n\n")
        told = [*peaks, *(one for one in others if not _is_small(one))]
        parts.append(_table(told) if told else "")
        small = [one for one in others if _is_small(one)]
        if small:
            names = ", ".join(sorted({_WORDS.get(one.component, one.component) for one in small}))
            sides = "by formula and by exact mode" if any(one.exact is not None for one in small) else "by formula"
            more = " more" if told else ""
            parts.append("\n" if told else "")
            parts.append(f"{len(small)}{more} ({names}) are within {_SMALL} % {sides}.\n")
        parts.append("\n")
    return "".join(parts)


def _is_small(one: Point) -> bool:
    return abs(one.formula_error) <= _SMALL and abs(one.exact_error or 0) <= _SMALL


def _table(rows: Iterable[Point]) -> str:
    lines = ["| figure | run | measured MiB | formula | exact |\n|---|---|---:|---:|---:|\n"]
    for one in rows:
        exact = "" if one.exact_error is None else f"{one.exact_error:+.2f} %"
        formula = f"{one.formula_error:+.2f} %" + (" (a lower bound)" if one.lacks else "")
        name = _WORDS.get(one.component, one.component)
        lines.append(f"| {name} | {one.run} | {one.measured / 2**20:.2f} | {formula} | {exact} |\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
