"""The JSON Schema of the wire contract: every report obeys it, closed as the test closes it, and nothing it promises is missing."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from fixture_models import NAMES, made, snapshot_of

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import NotFoundError
from hubaudit.fit.catalogue import hardware_named
from hubaudit.report.schema import schema
from hubaudit.report.wire import error_to_wire, to_wire
from hubaudit.types import ExactFit, ExactMemory, ExactPhase, RepoSnapshot, Workload

SCHEMA = schema()


def closed(part: Any) -> Any:
    """The same schema with no room for a name that it does not have."""
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    inner = {key: closed(value) for key, value in part.items()}
    return inner | {"additionalProperties": False} if "properties" in part and part.get("type") == "object" else inner


VALIDATOR = jsonschema.Draft202012Validator(closed(copy.deepcopy(SCHEMA)))


def check(document: dict[str, Any]) -> None:
    """The document as a program reads it; hubaudit/report/schema.py is where a new name of wire.py belongs."""
    VALIDATOR.validate(json.loads(json.dumps(document)))


def audited(snapshot: RepoSnapshot, workload: Workload, *, on: str | None = None) -> dict[str, Any]:
    """One report."""
    return to_wire(audit_snapshot(snapshot, workload, (hardware_named(on),) if on else ()))


def test_it_is_a_schema() -> None:
    """By the rules of its own draft."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", NAMES[::3])
def test_every_report_obeys(name: str) -> None:
    """All fixtures, all names in both directions."""
    check(audited(snapshot_of(name), Workload()))


@pytest.mark.parametrize(
    "workload", [Workload(mode="kv"), Workload(mode="train"), Workload(quant="nf4"), Workload(runtime="vllm")]
)
def test_every_mode_obeys(workload: Workload) -> None:
    """The same names whatever was asked."""
    check(audited(snapshot_of("qwen2-0.5b-instruct"), workload, on="rtx 4090"))


def test_what_is_not_known_obeys() -> None:
    """Nulls with reasons, findings, and a subject that could not be audited."""
    check(audited(made(None, {"model.norm.weight": ("F32", (8,))}), Workload()))
    check(error_to_wire("a/b", NotFoundError("gone")))


@pytest.mark.parametrize("change", [{"facts": 3}, {"schema_version": 2}, {"error": {"kind": "x"}}, {"estimate": {}}])
def test_it_can_fail(change: dict[str, Any]) -> None:
    """A document that is something else is refused."""
    document = audited(snapshot_of("qwen2-0.5b-instruct"), Workload()) | change
    with pytest.raises(jsonschema.ValidationError):
        check(document)


def test_an_exact_block_obeys() -> None:
    """The block that --exact adds, with a device to run on."""
    report = audit_snapshot(snapshot_of(NAMES[0]), Workload(), (hardware_named("rtx 4090"),))
    part = ExactPhase(name="load", allocated_bytes=1, reserved_bytes=2, peak_allocated_bytes=1, peak_reserved_bytes=2)
    fit = ExactFit(
        hardware=report.fit[0].hardware,
        capacity_bytes=9,
        fits=True,
        fits_expandable=True,
        needed_bytes=2,
        needed_expandable_bytes=2,
    )
    exact = ExactMemory(
        label="torch.cuda memory",
        estimate=report.estimate,
        peak_allocated_bytes=1,
        peak_reserved_bytes=2,
        phases=(part,),
        fits=(fit,),
    )
    document = to_wire(replace(report, exact=exact))
    assert document["exact"]["fit"][0]["gpu"] == report.fit[0].hardware.name
    check(document)


def test_an_unknown_exact_block_obeys() -> None:
    """Where exact mode has no answer, the block is null and the reason stands beside it."""
    report = audit_snapshot(snapshot_of(NAMES[0]), Workload())
    document = to_wire(replace(report, exact_unknown="quantized by gptq"))
    assert document["exact"] is None
    check(document)
