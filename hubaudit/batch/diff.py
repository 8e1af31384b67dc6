"""Two runs side by side: models that came, went, or are no longer the same, and what that does to where they fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hubaudit.batch.flat import FACTS, WORKLOAD, fit_cells, model_cells
from hubaudit.report.phrases import clean
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.batch.journal import Rows

_COMPARED = ("commit", "parameters", "active_parameters", *FACTS, "quantization", "findings", "errors", "error")
_ENDED = {
    "later": "failed",
    "access": "no access",
    "never": "cannot be audited",
    "bug": "met a bug",
    "audited": "audited",
}


def differences(old: Rows, new: Rows) -> Iterator[dict[str, Any]]:
    """What changed, model by model in the order of the new list, then what is gone.

    Each has its ``name`` and its ``change`` (``new``, ``gone``, ``changed``), the last with ``from`` and ``to`` for each thing that is another.
    Estimates and verdicts are compared for workloads that both runs have.
    """
    asked = [json.dumps(workload, sort_keys=True) for workload in old.plan["workloads"]]
    both = [
        (asked.index(text), at)
        for at, text in enumerate(json.dumps(workload, sort_keys=True) for workload in new.plan["workloads"])
        if text in asked
    ]
    for row in new:
        before = old.find(row["name"])
        if before is None:
            yield {"name": row["name"], "change": "new", "state": row["state"]}
            continue
        changes = _changes(before, row, both)
        if changes:
            yield {"name": row["name"], "change": "changed", "changes": changes}
    for row in old:
        if new.index.find(row["name"]) is None:
            yield {"name": row["name"], "change": "gone", "state": row["state"]}


def sentence(difference: dict[str, Any]) -> str:
    """One difference for people."""
    name = clean(difference["name"])
    if difference["change"] == "new":
        return f"+ {name} ({_ENDED[difference['state']]})"
    if difference["change"] == "gone":
        return f"- {name}"
    return f"~ {name}: " + "; ".join(map(_said, difference["changes"]))


def _changes(before: dict[str, Any], after: dict[str, Any], both: list[tuple[int, int]]) -> list[dict[str, Any]]:
    changes = []
    if before["state"] != after["state"]:
        changes.append({"what": "state", "from": before["state"], "to": after["state"]})
    if before["state"] == after["state"] == "later":
        return changes  # why it failed for the moment says nothing of the model
    old, new = model_cells(before), model_cells(after)
    changes += [
        {"what": name, "from": old[name], "to": new[name]}
        for name in _COMPARED
        if old[name] != new[name] and (name != "error" or after["state"] == before["state"])
    ]
    old_audits, new_audits = (row["document"].get("audits", []) for row in (before, after))
    for at_old, at_new in both if old_audits and new_audits else ():
        changes += _estimate_changes(old_audits[at_old], new_audits[at_new], len(both) > 1)
    return changes


def _estimate_changes(before: dict[str, Any], after: dict[str, Any], with_workload: bool) -> Iterator[dict[str, Any]]:
    if "estimate" not in before or "estimate" not in after:
        return
    workload = {name: after["workload"].get(name) for name in WORKLOAD} if with_workload else None
    old, new = before["estimate"]["total_bytes"], after["estimate"]["total_bytes"]
    if old != new:
        yield {"what": "total_bytes", "workload": workload, "from": old, "to": new}
    verdicts = {name: fit["verdict"] for name, fit in fit_cells(before)}
    for name, fit in fit_cells(after):
        if name in verdicts and verdicts[name] != fit["verdict"]:
            yield {"what": f"fit on {name}", "workload": workload, "from": verdicts[name], "to": fit["verdict"]}


def _said(change: dict[str, Any]) -> str:
    what, old, new = change["what"], change["from"], change["to"]
    if change.get("workload"):
        workload = change["workload"]
        return (
            f"{_said(change | {'workload': None})} (batch {workload['batch_size']}, {workload['prompt_tokens']} tokens)"
        )
    if what == "commit":
        return f"commit {str(old)[:8]} → {str(new)[:8]}"
    if what.endswith("_bytes") and isinstance(old, int) and isinstance(new, int):
        return f"{what.removesuffix('_bytes')} {format_bytes(old)} → {format_bytes(new)}"
    return clean(f"{what} {_shown(old)} → {_shown(new)}")


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if type(value) is int else str(value)
