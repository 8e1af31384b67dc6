"""The wire contract as JSON Schema (draft 2020-12), made of the types themselves, so that it cannot say anything else than they do.

Names may be added in later versions of the program, so objects are open; a test closes them and holds every fixture's report against them.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hubaudit import types
from hubaudit.report.wire import SCHEMA_VERSION

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    type(None): {"type": "null"},
}
_FACTS = (
    "library", "model_type", "architecture", "family", "parameters_reason", "stored_bytes", "file_bytes", "resident_bytes", "format", "layer_plan_reason",
    "name", "missing",
)  # fmt: skip
_SOURCED = {
    "layers": int, "hidden_size": int, "intermediate_size": int, "attention_heads": int, "kv_heads": int, "head_dim": int, "vocab_size": int,
    "max_positions": int, "tied_embeddings": bool, "dtype": str,
}  # fmt: skip


def schema() -> dict[str, Any]:
    """What one document of ``--format json`` (one model) or one line of ``--format jsonl`` is."""
    answer = {
        "facts": {"$ref": "#/$defs/facts"},
        "workload": _slots(types.Workload),
        "estimate": _estimate(),
        "variants": _list(_slots(types.Variant)),
        "fit": _list(_fit()),
        "findings": _list(_slots(types.Finding)),
    }
    error = _object({name: {"type": "string"} for name in ("kind", "message", "hint")})
    head = {
        "schema_version": {"const": SCHEMA_VERSION},
        "tool": _object({"name": {"const": "hubaudit"}, "version": {"type": "string"}}),
        "subject": _object(
            {
                "repo_id": _of(str),
                "revision": _of(str | None),
                "commit": _of(str | None),
                "source": _or_null(_of(types.Source)),
            }
        ),
    }
    return {
        "$schema": _DRAFT,
        "title": f"A report of hubaudit, schema version {SCHEMA_VERSION}",
        "type": "object",
        "required": list(head),
        "properties": head | answer | {"error": error, "exact": _or_null(_exact()), "exact_unknown": _of(str)},
        "oneOf": [{"required": list(answer)}, {"required": ["error"]}],
        "$defs": {"facts": _facts()},
    }


def _facts() -> dict[str, Any]:
    hints = get_type_hints(types.ModelFacts)
    moe = _object(dict.fromkeys(("experts", "experts_per_token", "expert_intermediate_size"), _of(int | None)))
    counts = _slots(types.ParameterCount)
    counts["properties"]["trainable"] = _of(int | None)
    weight_set = _object(
        {
            name: _of(get_type_hints(types.WeightSet)[name])
            for name in ("format", "variant", "files", "size_bytes", "missing", "note")
        }
    )
    return _object(
        {name: _of(hints[name]) for name in _FACTS}
        | {name: _of(kind | None) for name, kind in _SOURCED.items()}
        | {
            "where": _object(dict.fromkeys(_SOURCED, _of(str))),
            "moe": _or_null(moe),
            "parameters": _or_null(counts),
            "quantization": _or_null(_slots(types.Quantization)),
            "layer_plan": _list(_layers()),
            "num_classes": _of(int | None),
            "components": _list({"$ref": "#/$defs/facts"}),
            "chosen_weights": _list(weight_set),
            "other_weights": _list(weight_set),
        }
    )


def _layers() -> dict[str, Any]:
    """Equal layers are told once; of a tensor only what is not null."""
    tensor = _slots(types.CacheTensor)
    tensor["required"] = ["name"]
    layer = get_type_hints(types.LayerSpec)
    return _object(
        {
            "kind": _of(layer["kind"]),
            "layers": _list(_of(int)),
            "shares_cache_with": _of(layer["shares_cache_with"]),
            "where": _of(str),
            "tensors": _list(tensor),
        }
    )


def _estimate() -> dict[str, Any]:
    made = _slots(types.Estimate)
    verdict = get_type_hints(types.Fit)["verdict"]
    made["properties"]["stages"]["items"]["properties"]["fits"] = _or_null(_of(verdict))
    return made


def _exact() -> dict[str, Any]:
    """Only where --exact asked for it."""
    part = get_type_hints(types.Component)
    fit = {
        "gpu": _of(str),
        **dict.fromkeys(
            ("usable_bytes", "capacity_bytes", "needed_bytes", "needed_expandable_segments_bytes"), _of(int)
        ),
        **dict.fromkeys(("fits", "fits_expandable_segments"), _of(bool)),
    }
    return _object(
        {
            "label": _of(str),
            "fidelity": _of(get_type_hints(types.Estimate)["fidelity"]),
            "max_allocated_bytes": _of(int),
            "max_reserved_bytes": _of(int),
            "peak_phase": _of(str | None),
            "components": _list(_object({name: _of(part[name]) for name in ("id", "category", "bytes")})),
            "phases": _list(_slots(types.ExactPhase)),
            "fit": _list(_object(fit)),
            "assumptions": _list(_of(str)),
            "omitted": _list(_slots(types.Omission)),
        }
    )


def _fit() -> dict[str, Any]:
    hardware, fit = get_type_hints(types.Hardware), get_type_hints(types.Fit)
    own = {
        "gpu": _of(hardware["name"]),
        **{name: _of(hardware[name]) for name in ("count", "usable_bytes", "usable_source")},
    }
    return _object(own | {name: _of(hint) for name, hint in fit.items() if name != "hardware"})


def _slots(kind: type) -> dict[str, Any]:
    """An object with all the fields of a dataclass, each by its own type."""
    return _object({name: _of(hint) for name, hint in get_type_hints(kind).items()})


def _of(hint: Any) -> dict[str, Any]:
    """The schema of a type that the wire spells as it is."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, python_types.UnionType):
        return {"anyOf": [_of(one) for one in inner]}
    if origin is tuple:
        return _list(_of(inner[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(inner[1])}
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return _slots(hint)
    raise TypeError(f"the wire has no spelling for {hint}")


def _or_null(inner: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [inner, {"type": "null"}]}


def _list(inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": inner}


def _object(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}
