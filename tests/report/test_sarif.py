"""SARIF 2.1.0: by Microsoft's object model, which is generated from the OASIS schema, and by the schema itself where it is at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from shapes import BASE, SHAPES, as_json
from small_repos import CONFIG

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import AccessError
from hubaudit.findings import rules
from hubaudit.hub import fetch
from hubaudit.report.sarif import to_sarif
from hubaudit.types import Report, Workload

sarif_om = pytest.importorskip("sarif_om")

#: Which class of the model stands where.
CLASSES: dict[str, Any] = {
    "runs": "Run", "tool": "Tool", "driver": "ToolComponent", "rules": "ReportingDescriptor", "shortDescription": "MultiformatMessageString",
    "fullDescription": "MultiformatMessageString", "help": "MultiformatMessageString", "defaultConfiguration": "ReportingConfiguration",
    "invocations": "Invocation", "toolExecutionNotifications": "Notification", "descriptor": "ReportingDescriptorReference", "message": "Message",
    "results": "Result", "locations": "Location", "physicalLocation": "PhysicalLocation", "artifactLocation": "ArtifactLocation", "region": "Region",
    "logicalLocations": "LogicalLocation",
}  # fmt: skip


def faulty(folder: Path) -> Report:
    """A model with a finding in a config's field, one on a card's line, and one in a file with a name that is no URI."""
    files = {**SHAPES["twins"], "config.json": as_json({**CONFIG, "num_key_value_heads": 4}), "pickle % ü.bin": b"",
             "README.md": b"# x\n\n- Context length: 4,096 tokens\n"}  # fmt: skip
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return audit_snapshot(fetch(str(folder)), Workload())


def document(folder: Path) -> dict[str, Any]:
    """The SARIF of that model and of one that could not be read."""
    made: dict[str, Any] = json.loads(to_sarif([faulty(folder), ("org/gated", AccessError("gated"))]))
    return made


def check(value: Any, name: str) -> None:
    """Every property is one of its class, and what the class requires is there."""
    fields = {one.metadata["schema_property_name"]: one for one in getattr(sarif_om, name).__attrs_attrs__}
    assert value.keys() <= fields.keys(), name
    required = {
        key
        for key, one in fields.items()
        if one.default.__class__.__name__ == "_Nothing" or "NOTHING" in repr(one.default)
    }
    assert required <= value.keys(), name
    for key, inner in value.items():
        if key in CLASSES:
            for one in inner if isinstance(inner, list) else [inner]:
                check(one, CLASSES[key])


def test_the_object_model(tmp_path: Path) -> None:
    """Nothing is in it that the standard does not have, and nothing that it requires is missing."""
    log = document(tmp_path)
    assert log.pop("$schema").endswith("sarif-schema-2.1.0.json")
    check(log, "SarifLog")


def test_the_schema(tmp_path: Path) -> None:
    """The official schema takes it: SARIF_SCHEMA names sarif-schema-2.1.0.json of oasis-tcs/sarif-spec, which is not ours to ship."""
    schema = os.environ.get("SARIF_SCHEMA")
    if not schema:
        pytest.skip("SARIF_SCHEMA names no file")
    import jsonschema

    validator = jsonschema.Draft4Validator(json.loads(Path(schema).read_text(encoding="utf-8")))
    validator.validate(document(tmp_path))
    validator.validate(json.loads(to_sarif([])))


def test_findings_are_results(tmp_path: Path) -> None:
    """Each finding with its level, its rule by index, its file relative to the folder, its line, and a fingerprint of its own."""
    report = faulty(tmp_path)
    run = json.loads(to_sarif([report]))["runs"][0]
    results = run["results"]
    assert len(results) == len(report.findings) >= 4
    assert [run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] for one in results] == [
        one["ruleId"] for one in results
    ]
    assert len({one["partialFingerprints"]["hubauditFinding/v1"] for one in results}) == len(results)
    (card,) = [one for one in results if one["ruleId"] == "card-context"]
    place = card["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("/README.md")
    assert place["region"] == {"startLine": 3}
    assert card["level"] == "warning"
    (head,) = [one for one in results if one["ruleId"] == "head-shape-mismatch"]
    assert (head["level"], head["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]) == (
        "error",
        "num_key_value_heads",
    )


def test_a_failure_is_no_result(tmp_path: Path) -> None:
    """What could not be audited makes the run unsuccessful, and is no finding."""
    run = document(tmp_path)["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "org/gated" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    clean = json.loads(to_sarif([audit_snapshot(fetch(str(laid_out(tmp_path / "ok"))), Workload())]))["runs"][0]
    assert clean["invocations"][0]["executionSuccessful"] is True
    assert clean["results"] == []
    assert len(clean["tool"]["driver"]["rules"]) == len(rules())


def laid_out(folder: Path) -> Path:
    """A sound model."""
    folder.mkdir()
    for path, content in {**BASE, "LICENSE": b"MIT"}.items():
        (folder / path).write_bytes(content)
    return folder
