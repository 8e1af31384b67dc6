"""The wire contract: the names that programs rely on."""

from __future__ import annotations

import json

import pytest
from fixture_models import NAMES, made, snapshot_of

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import NotFoundError
from hubaudit.report.wire import error_to_wire, to_wire
from hubaudit.types import Workload

# DESIGN.md, "Wire contract"; additions are allowed, nothing may go.
CONTRACT = {
    "": {"schema_version", "tool", "subject", "facts", "workload", "estimate", "variants", "fit", "findings"},
    "tool": {"name", "version"},
    "subject": {"repo_id", "revision", "commit", "source"},
    "facts": {
        "library", "model_type", "architecture", "layers", "hidden_size", "attention_heads", "kv_heads", "head_dim", "vocab_size", "max_positions",
        "tied_embeddings", "parameters", "stored_bytes", "file_bytes", "quantization", "layer_plan", "components",
    },
    "facts.parameters": {"total", "active", "trainable", "by_dtype", "by_role"},
    "workload": {"mode", "batch_size", "prompt_tokens", "new_tokens", "dtype", "quant", "kv_dtype", "cache", "attention", "runtime"},
    "estimate": {"total_bytes", "low_bytes", "high_bytes", "fidelity", "components", "assumptions"},
    "estimate.components.0": {"id", "category", "bytes", "formula", "inputs", "exactness", "sources"},
    "variants.0": {"dtype", "quant", "weights_bytes", "total_bytes"},
}  # fmt: skip


@pytest.mark.parametrize("place", CONTRACT)
def test_the_contract_holds(place: str) -> None:
    """Every name that the contract promises is there."""
    wire = json.loads(json.dumps(to_wire(audit_snapshot(snapshot_of("qwen2-0.5b-instruct"), Workload()))))
    for step in filter(None, place.split(".")):
        wire = wire[int(step)] if step.isdigit() else wire[step]
    assert wire.keys() >= CONTRACT[place]


@pytest.mark.parametrize("name", NAMES)
def test_every_report_is_json(name: str) -> None:
    """No report holds anything that JSON cannot, NaN included."""
    text = json.dumps(to_wire(audit_snapshot(snapshot_of(name), Workload())), allow_nan=False)
    assert json.loads(text)["subject"]["repo_id"] == snapshot_of(name).repo_id


def test_open_choices_are_filled_in() -> None:
    """The workload of a report says what was really estimated."""
    workload = to_wire(audit_snapshot(snapshot_of("qwen2-0.5b-instruct"), Workload()))["workload"]
    assert (workload["prompt_tokens"], workload["new_tokens"], workload["dtype"], workload["kv_dtype"]) == (
        2048,
        512,
        "bf16",
        "bf16",
    )


def test_an_unknown_value_is_null_and_its_reason_stands_beside() -> None:
    """`facts.where` says why."""
    facts = to_wire(audit_snapshot(made(None, {"model.norm.weight": ("F32", (8,))}), Workload()))["facts"]
    assert facts["kv_heads"] is None
    assert "no config.json" in facts["where"]["kv_heads"]


def test_a_failed_subject_is_a_row_like_any_other() -> None:
    """`error` stands in place of facts and the rest."""
    wire = error_to_wire("a/b", NotFoundError("no model `a/b`", hint="check the name"))
    assert wire["error"] == {"kind": "not_found", "message": "no model `a/b`", "hint": "check the name"}
    assert wire["subject"]["repo_id"] == "a/b"
    assert "facts" not in wire
