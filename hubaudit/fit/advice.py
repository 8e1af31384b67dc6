"""What to change of a training run that does not fit: the cheapest changes in order, what each saves, and what it costs in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.errors import UsageError
from hubaudit.estimate.modes import estimate
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from hubaudit.types import Estimate, ModelFacts, Workload

TABLE = "advice.toml"


def advise(facts: ModelFacts, workload: Workload, usable_bytes: int) -> str | None:
    """Changes on top of each other until the upper end of the band fits, with the bytes each saves, as a sentence; ``None`` for what is no training run."""
    if workload.mode != "train":
        return None
    here = estimate(facts, workload)
    said: list[str] = []
    left = list(table(TABLE)["change"])
    while here.high_bytes > usable_bytes or here.omitted:
        found = _first_that_saves(facts, workload, here, left)
        if found is None:
            return f"it does not fit even with {_listed(said)}" if said else None
        change, workload, made = found
        left.remove(change)
        saved = format_bytes(here.total_bytes - made.total_bytes)
        said.append(f"{change['name']}, which saves {saved} ({change['cost']}; {change['source']})")
        here = made
    return f"it fits, with {format_bytes(here.total_bytes)}, after {_listed(said)}" if said else None


def _listed(changes: list[str]) -> str:
    """Changes in their order."""
    return "; then ".join(changes)


def _first_that_saves(
    facts: ModelFacts, workload: Workload, here: Estimate, left: list[dict[str, Any]]
) -> tuple[dict[str, Any], Workload, Estimate] | None:
    """The cheapest change that lowers the peak: one that does nothing yet may do so after another has moved it."""
    for change in left:
        other = _changed(workload, change)
        if other is None:
            continue
        try:
            made = estimate(facts, other)
        except UsageError:
            continue  # not for this model
        if made.high_bytes < here.high_bytes:
            return change, other, made
    return None


def _changed(workload: Workload, change: dict[str, Any]) -> Workload | None:
    """The workload with the change; ``None`` where it is so already, or the change is not for it."""
    wanted = dict(change["set"])
    if change.get("needs_gpus") and (workload.gpus == 1 or workload.fsdp is not None):
        return None
    if "lora" in wanted and workload.lora is not None:
        return None
    if "batch_size" in wanted:
        wanted["grad_accum"] = workload.grad_accum * workload.batch_size
    if "lora" in wanted:
        wanted |= {"recipe": "bf16", "dtype": None}
    other = replace(workload, **wanted)
    return None if other == workload else other
