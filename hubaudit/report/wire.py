"""The wire contract, version 1: names are fixed, and only ever added to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubaudit._version import __version__
from hubaudit.report.exact import to_wire as exact_to_wire
from hubaudit.report.stages import verdict_on

if TYPE_CHECKING:
    from hubaudit.errors import HubauditError
    from hubaudit.types import (
        Component,
        Estimate,
        LayerSpec,
        ModelFacts,
        ParameterCount,
        Report,
        Sourced,
        StageShare,
        WeightSet,
        Workload,
    )

SCHEMA_VERSION = 1
_SOURCED = (
    "layers",
    "hidden_size",
    "intermediate_size",
    "attention_heads",
    "kv_heads",
    "head_dim",
    "vocab_size",
    "max_positions",
    "tied_embeddings",
    "dtype",
)


def to_wire(report: Report) -> dict[str, Any]:
    """The report as JSON-ready objects. Unknown values are ``null`` and their reasons stand in ``facts.where``."""
    return head(report.subject.repo_id) | {
        "subject": {
            "repo_id": report.subject.repo_id,
            "revision": report.subject.revision,
            "commit": report.subject.commit,
            "source": report.subject.source,
        },
        "facts": _facts(report.facts),
        "workload": _workload(report.workload),
        "estimate": _estimate(report.estimate) | {"stages": [_stage(report, one) for one in report.estimate.stages]},
        "variants": [
            {
                "dtype": variant.dtype,
                "quant": variant.quant,
                "plain_bytes": variant.plain_bytes,
                "weights_bytes": variant.weights_bytes,
                "total_bytes": variant.total_bytes,
                "note": variant.note,
            }
            for variant in report.variants
        ],
        "fit": [
            {
                "gpu": fit.hardware.name,
                "count": fit.hardware.count,
                "usable_bytes": fit.hardware.usable_bytes,
                "usable_source": fit.hardware.usable_source,
                "verdict": fit.verdict,
                "headroom_bytes": fit.headroom_bytes,
                "max_batch": fit.max_batch,
                "max_context": fit.max_context,
                "best_precision": fit.best_precision,
                "min_devices": fit.min_devices,
                "reason": fit.reason,
                "cache_tokens": fit.cache_tokens,
                "full_sequences": fit.full_sequences,
                "full_tokens": fit.full_tokens,
                "split": fit.split,
                "devices_needed": fit.devices_needed,
                "needed_split": fit.needed_split,
            }
            for fit in report.fit
        ],
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity,
                "message": finding.message,
                "where": finding.where,
                "help": finding.help,
                "line": finding.line,
            }
            for finding in report.findings
        ],
        **_exact(report),
    }


def error_to_wire(name: str, error: HubauditError) -> dict[str, Any]:
    """A subject that could not be audited, as a row like any other."""
    return head(name) | {"error": error_of(error)}


def error_of(error: HubauditError) -> dict[str, str]:
    """Why there is no answer."""
    return {"kind": error.kind, "message": error.message, "hint": error.hint}


def head(name: str) -> dict[str, Any]:
    """What every document begins with: the contract's version, the tool, and the subject as it was named."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "hubaudit", "version": __version__},
        "subject": {"repo_id": name, "revision": None, "commit": None, "source": None},
    }


def _exact(report: Report) -> dict[str, Any]:
    """The exact block, where it was asked for, or why there is none."""
    if report.exact_unknown is not None:
        return {"exact": None, "exact_unknown": report.exact_unknown}
    block = exact_to_wire(report)
    return {} if block is None else {"exact": block}


def _facts(facts: ModelFacts) -> dict[str, Any]:
    sourced: dict[str, Sourced[Any]] = {name: getattr(facts, name) for name in _SOURCED}
    moe = facts.moe
    return {
        "library": facts.library,
        "model_type": facts.model_type,
        "architecture": facts.architecture,
        "family": facts.family,
        **{name: fact.value for name, fact in sourced.items()},
        "where": {name: fact.where for name, fact in sourced.items()},
        "moe": None
        if moe is None
        else {
            "experts": moe.experts.value,
            "experts_per_token": moe.experts_per_token.value,
            "expert_intermediate_size": moe.expert_intermediate_size.value,
        },
        "parameters": _parameters(facts.parameters),
        "parameters_reason": facts.parameters_reason,
        "stored_bytes": facts.stored_bytes,
        "file_bytes": facts.file_bytes,
        "resident_bytes": facts.resident_bytes,
        "format": facts.format,
        "quantization": None
        if facts.quantization is None
        else {name: getattr(facts.quantization, name) for name in facts.quantization.__slots__},
        "layer_plan": _layer_plan(facts.layer_plan),
        "layer_plan_reason": facts.layer_plan_reason,
        "name": facts.name,
        "num_classes": None if facts.num_classes is None else facts.num_classes.value,
        "components": [_facts(part) for part in facts.components],
        "chosen_weights": [_weight_set(one) for one in facts.chosen],
        "other_weights": [_weight_set(one) for one in facts.other_weights],
        "missing": list(facts.missing),
    }


def _weight_set(one: WeightSet) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("format", "variant", "files", "size_bytes", "missing", "note")}


def _parameters(count: ParameterCount | None) -> dict[str, Any] | None:
    if count is None:
        return None
    return {
        "total": count.total,
        "loaded": count.loaded,
        "active": count.active,
        "trainable": count.loaded,
        "by_dtype": dict(count.by_dtype),
        "by_role": dict(count.by_role),
        "extra": dict(count.extra),
        "where": count.where,
    }


def _layer_plan(plan: tuple[LayerSpec, ...] | None) -> list[dict[str, Any]]:
    """The plan with equal layers told once: which layers, and what each keeps for one sequence."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for layer in plan or ():
        alike.setdefault((layer.kind, layer.tensors, layer.shares_cache_with, layer.where), []).append(layer.index)
    return [
        {
            "kind": kind,
            "layers": indexes,
            "shares_cache_with": shared,
            "where": where,
            "tensors": [
                {name: getattr(tensor, name) for name in tensor.__slots__ if getattr(tensor, name) is not None}
                for tensor in tensors
            ],
        }
        for (kind, tensors, shared, where), indexes in alike.items()
    ]


def _workload(workload: Workload) -> dict[str, Any]:
    return {name: getattr(workload, name) for name in workload.__slots__}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "total_bytes": estimate.total_bytes,
        "low_bytes": estimate.low_bytes,
        "high_bytes": estimate.high_bytes,
        "fidelity": estimate.fidelity,
        "phases": [{"name": phase.name, "bytes": phase.bytes} for phase in estimate.phases],
        "peak_phase": estimate.peak_phase,
        "components": [_component(part) for part in estimate.components],
        "devices": [{name: getattr(one, name) for name in one.__slots__} for one in estimate.devices],
        "assumptions": list(estimate.assumptions),
        "omitted": [{"id": part.id, "reason": part.reason} for part in estimate.omitted],
    }


def _stage(report: Report, stage: StageShare) -> dict[str, Any]:
    """One way to share a training run; ``fits`` on the first device asked about, ``None`` where none was."""
    return {name: getattr(stage, name) for name in stage.__slots__} | {"fits": verdict_on(report, stage)}


def _component(part: Component) -> dict[str, Any]:
    return {
        "id": part.id,
        "category": part.category,
        "bytes": part.bytes,
        "low_bytes": part.low_bytes,
        "high_bytes": part.high_bytes,
        "formula": part.formula,
        "inputs": dict(part.inputs),
        "exactness": part.exactness,
        "sources": list(part.sources),
    }
