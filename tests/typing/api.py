"""The public API as types: mypy --strict checks this file, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

from hubaudit import HubauditError, Report, RepoSnapshot, Workload, audit, audit_snapshot, fetch, to_wire

report = audit("org/name", mode="kv", revision="main", offline=True)
assert_type(report, Report)
assert_type(report.facts.layers.value, int | None)
assert_type(report.facts.tied_embeddings.value, bool | None)
assert_type(report.estimate.total_bytes, int)
assert_type(to_wire(report), dict[str, Any])

snapshot = fetch("org/name")
assert_type(snapshot, RepoSnapshot)
assert_type(audit_snapshot(snapshot, Workload(batch_size=4)), Report)

try:
    audit("nothing")
except HubauditError as error:
    assert_type(error.exit_code, int)
    assert_type(error.hint, str)
