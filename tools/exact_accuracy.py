"""Exact mode's peaks of every family of fixtures, whole: what the estimate by formula is held against in docs/accuracy.md.

python -m tools.exact_accuracy record [SECONDS]   trace what fixtures/exact/peaks.jsonl lacks (needs torch, transformers and bitsandbytes)

Each family generates, and trains in bf16 with fused AdamW, with and without checkpointing, as the command line would ask for it. tools/accuracy.py makes
the table, with the formula's figures of today.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubaudit.auditing import audit_facts
from hubaudit.errors import HubauditError
from hubaudit.facts.repository import understand
from hubaudit.hub.bundle import read_bundle
from hubaudit.types import Report, RepoSnapshot, Workload

_ROOT = Path(__file__).resolve().parent.parent
RECORDED = _ROOT / "fixtures" / "exact" / "peaks.jsonl"
WAYS = {
    "generation": Workload(mode="infer", batch_size=1, prompt_tokens=1024, new_tokens=16),
    "training": Workload(mode="train", batch_size=1, sequence_tokens=1024, recipe="bf16", optimizer="adamw"),
    "training, checkpointing": Workload(
        mode="train",
        batch_size=1,
        sequence_tokens=1024,
        recipe="bf16",
        optimizer="adamw",
        gradient_checkpointing="full",
    ),
}
#: Longest sequence of a class, and where plain PyTorch takes tokens one by one and so takes long.
_TOKENS = {"all-minilm-l6-v2": 512, "bert-base-uncased": 512, "roberta-base": 512, "t5-small": 512, "mamba-130m-hf": 64}


def families() -> list[str]:
    """The fixtures, by name."""
    found = sorted((_ROOT / "fixtures" / "bundles").glob("*.json.gz"))
    return [path.name.removesuffix(".json.gz") for path in found]


def report_of(family: str, way: str) -> tuple[RepoSnapshot, Report]:
    """The fixture as it was stored, and today's report on it."""
    snapshot = read_bundle(_ROOT / "fixtures" / "bundles" / f"{family}.json.gz")
    work = WAYS[way]
    tokens = _TOKENS.get(family)
    if tokens is not None:
        work = replace(work, prompt_tokens=tokens) if work.mode == "infer" else replace(work, sequence_tokens=tokens)
    return snapshot, audit_facts(snapshot, understand(snapshot), work, with_variants=False)


def recorded() -> list[dict[str, Any]]:
    """The rows of the record."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    return [json.loads(line) for line in lines]


def traced(family: str, way: str) -> dict[str, Any]:
    """Both peaks, or why there are none, in one line."""
    from hubaudit.exact.auditing import exact_audit
    from hubaudit.exact.settings import AllocatorSettings

    try:
        snapshot, report = report_of(family, way)
        memory = exact_audit(snapshot, report, AllocatorSettings()).memory
    except HubauditError as error:
        return {"error": str(error)[:160]}
    return {
        "label": memory.label,
        "allocated_bytes": memory.peak_allocated_bytes,
        "reserved_bytes": memory.peak_reserved_bytes,
    }


def main(words: list[str]) -> None:
    """Trace what is not recorded, until the time is over."""
    end = time.monotonic() + (float(words[1]) if len(words) > 1 else float("inf"))
    done = {(row["family"], row["way"]) for row in recorded()}
    for way in WAYS:
        for family in families():
            if (family, way) in done or time.monotonic() > end:
                continue
            row = {"family": family, "way": way, **traced(family, way)}
            with RECORDED.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
