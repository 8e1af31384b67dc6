"""A row of the journal → the cells of a table: what is known of the model, and one record for each workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Facts of one model, by the names of the wire contract.
FACTS = (
    "library",
    "architecture",
    "model_type",
    "family",
    "layers",
    "hidden_size",
    "intermediate_size",
    "attention_heads",
    "kv_heads",
    "head_dim",
    "vocab_size",
    "max_positions",
    "dtype",
    "format",
    "file_bytes",
    "stored_bytes",
    "resident_bytes",
)
#: What of a workload tells one from another.
WORKLOAD = ("mode", "runtime", "batch_size", "prompt_tokens", "new_tokens", "dtype", "quant", "kv_dtype")
_PARTS = ("weights", "kv_cache")


def model_cells(row: dict[str, Any]) -> dict[str, Any]:
    """One model: where it lies, what it is, how its audit ended. What is not known is ``None``."""
    document = row["document"]
    facts = document.get("facts") or {}
    parameters = facts.get("parameters") or {}
    error = document.get("error") or {}
    severities = [finding["severity"] for finding in document.get("findings", ())]
    return {
        "name": row["name"],
        "repo_id": document["subject"]["repo_id"],
        "commit": document["subject"]["commit"],
        "state": row["state"],
        **{name: facts.get(name) for name in FACTS},
        "parameters": parameters.get("total"),
        "active_parameters": parameters.get("active"),
        "quantization": (facts.get("quantization") or {}).get("method"),
        "findings": len(severities) if facts else None,
        "errors": severities.count("error") if facts else None,
        "error_kind": error.get("kind"),
        "error": error.get("message"),
        "audited_at": row["at"],
    }


def audit_cells(audit: dict[str, Any]) -> dict[str, Any]:
    """One workload of one model: what was asked, and what it takes, or why it takes nothing."""
    workload, estimate = audit["workload"], audit.get("estimate")
    cells = {f"workload_{name}": workload.get(name) for name in WORKLOAD}
    if estimate is None:
        return cells | {"error_kind": audit["error"]["kind"], "error": audit["error"]["message"]}
    sizes = {f"{part['id']}_bytes": part["bytes"] for part in estimate["components"] if part["id"] in _PARTS}
    totals = {name: estimate[name] for name in ("total_bytes", "low_bytes", "high_bytes")}
    return cells | sizes | totals | {"omitted": omitted_words(estimate)}


def omitted_words(estimate: dict[str, Any]) -> str | None:
    """What the total lacks, by component; ``None`` where it is whole."""
    return "; ".join(part["id"] for part in estimate.get("omitted", ())) or None


def fit_cells(audit: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each device with its verdict."""
    for fit in audit.get("fit", ()):
        yield device_name(fit["gpu"], fit["count"]), fit


def device_name(name: str, count: int) -> str:
    """A device as people write it, ``4090 × 2``."""
    return f"{name} × {count}" if count > 1 else name


def device_names(plan: dict[str, Any]) -> list[str]:
    """The plan's devices in its order."""
    return [device_name(one["name"], one["count"]) for one in plan["hardware"]]


def workload_words(workload: dict[str, Any]) -> str:
    """A plan's workload in a few words: what was asked beside the mode."""
    words = [str(workload.get("mode", "infer"))]
    words += [f"{name}={value}" for name, value in workload.items() if name != "mode"]
    return " ".join(words)
