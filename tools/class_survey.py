"""Every model class of the installed transformers against what the audit says of it: built on the meta device, its tensors named as it saves them.

``python -m tools.class_survey OUT.jsonl [--by-name | TYPE…]`` writes a row a class: parameters, error findings, and the bytes of its weights quantized while
loading, from the modules that transformers' own bitsandbytes integration exchanges (needs torch, transformers and bitsandbytes).
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.errors import HubauditError
from hubaudit.estimate.conversion import conversion_of
from hubaudit.estimate.infer import estimate
from hubaudit.estimate.linear_names import is_compared
from hubaudit.estimate.quantized_weights import Matrix, bytes_of
from hubaudit.facts.repository import understand
from hubaudit.findings import find
from hubaudit.types import RepoSnapshot, TensorInfo, WeightFile, Workload
from tools import meta_cases
from tools.meta_caches import config_of, small_default, tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import ModelFacts

_DTYPES = {
    "torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16", "torch.int64": "I64", "torch.int32": "I32", "torch.bool": "BOOL",
    "torch.uint8": "U8", "torch.int8": "I8", "torch.float64": "F64",
}  # fmt: skip
QUANTS = ("nf4", "int8")


def classes() -> Iterator[tuple[str, str]]:
    """Each model type with each class that an auto class makes of it."""
    auto, known = tools().auto, tools().configs
    found: dict[tuple[str, str], None] = {}
    for attribute in sorted(vars(auto)):
        if attribute.startswith("MODEL_") and attribute.endswith("MAPPING_NAMES"):
            for model_type, names in vars(auto)[attribute].items():
                for name in [names] if isinstance(names, str) else names:
                    found[model_type, name] = None
    for model_type, name in sorted(found):
        if model_type in known:
            yield model_type, name


def built(model_type: str, class_name: str, layers: dict[str, Any]) -> Any:
    """The class's model of its shallow default configuration, in bfloat16 on the meta device."""
    torch = tools().torch
    made_class = getattr(tools().transformers, class_name)
    if model_type not in layers:
        layers[model_type] = meta_cases.patched(small_default(model_type), meta_cases.case_for(model_type).set)
    config = config_of(layers[model_type])
    if made_class.config_class in type(config).sub_configs.values():
        config = next(
            getattr(config, name) for name, part in type(config).sub_configs.items() if part is made_class.config_class
        )
    with torch.device("meta"):
        return made_class._from_config(config, dtype=torch.bfloat16)


def saved(model: Any, state: dict[str, Any] | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of a checkpoint that ``save_pretrained`` would write of the model, or of this state of it, by its own steps."""
    modeling = importlib.import_module("transformers.modeling_utils")
    state = {
        name: tensor
        for name, tensor in (state or model.state_dict()).items()
        if name not in (model._keys_to_ignore_on_save or ())
    }
    state = modeling.remove_tied_weights_from_state_dict(state, model)
    state = modeling.revert_weight_conversion(model, state)
    return {name: (_DTYPES[str(tensor.dtype)], tuple(tensor.shape)) for name, tensor in state.items()}


def snapshot(model: Any, told: dict[str, tuple[str, tuple[int, ...]]]) -> RepoSnapshot:
    """The repository that a checkpoint of these tensors is."""
    model.config.architectures = [type(model).__name__]
    model.config.dtype = "bfloat16"
    config = json.loads(model.config.to_json_string(use_diff=True))
    tensors = tuple(_tensor(name, dtype, shape) for name, (dtype, shape) in told.items())
    file = WeightFile(path="model.safetensors", size_bytes=None, format="safetensors", tensors=tensors)
    return RepoSnapshot(
        repo_id="made/up", revision=None, commit=None, source="local", configs={"config.json": config}, weights=(file,)
    )


def _tensor(name: str, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    count = 1
    for side in shape:
        count *= side
    return TensorInfo(name, dtype, shape, count * {"64": 8, "32": 4, "16": 2}.get(dtype[-2:], 1))


def converted(model: Any) -> dict[str, tuple[int, int]]:
    """Rows and columns of every module that transformers' bitsandbytes integration would exchange: its own conditions, nothing exchanged."""
    base = importlib.import_module("transformers.quantizers.base")
    conditions = importlib.import_module("transformers.quantizers.quantizers_utils")
    conv1d = importlib.import_module("transformers.pytorch_utils").Conv1D
    keys = base.HfQuantizer.get_modules_to_not_convert(model, None, model._keep_in_fp32_modules)
    found = {}
    for name, module in model.named_modules():
        if conditions.should_convert_module(name, keys):
            if isinstance(module, conv1d):
                found[name] = (module.weight.shape[1], module.weight.shape[0])
            elif type(module) is tools().torch.nn.Linear:
                found[name] = (module.out_features, module.in_features)
    return found


def true_bytes(model: Any, quant: str, chosen: dict[str, tuple[int, int]]) -> int:
    """Bytes of all weights with these modules converted by ``quant`` and all else in bfloat16, or float32 where the class keeps it so."""
    conversion = conversion_of(Workload(quant=quant))
    assert conversion is not None
    loading = importlib.import_module("transformers.core_model_loading")
    plan = model._get_dtype_plan(tools().torch.bfloat16)
    wide = loading.build_glob_alternation(list(plan))[0] if plan else None
    total, seen = 0, set()
    for name, parameter in model.state_dict(keep_vars=True).items():
        module = name.removesuffix(".weight")
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        if name.endswith(".weight") and module in chosen:
            rows, columns = chosen[module]
            matrix = Matrix(name=name, kind="linear", rows=rows, columns=columns)
            total += sum(bytes_of(formula, matrix, conversion, 2) for formula in conversion.parts.values())
        else:
            width = (
                2 if parameter.is_floating_point() else parameter.element_size()
            )  # some classes make float32 themselves, and loading casts it
            width = 4 if wide is not None and wide.search(name) else width
            total += parameter.numel() * width
    return total


def row(model_type: str, class_name: str, layers: dict[str, Any]) -> dict[str, Any]:
    """What is compared of one class."""
    model = built(model_type, class_name, layers)
    read = snapshot(model, saved(model))
    facts = understand(read)
    chosen = converted(model)
    found: dict[str, Any] = {
        "type": model_type,
        "class": class_name,
        "parameters": sum(
            tensor.numel()
            for tensor in {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}.values()
        ),
        "loaded": None if facts.parameters is None else facts.parameters.loaded,
        "total": None if facts.parameters is None else facts.parameters.total,
        "is_built": bool(facts.built),
        "findings": [
            [one.rule, one.severity, one.message]
            for one in find(read, facts)
            if one.severity == "error" or "mismatch" in one.rule
        ],
    }
    for quant in QUANTS:
        found[quant] = _quantized(model, facts, quant, chosen)
    return found


def _quantized(model: Any, facts: ModelFacts, quant: str, chosen: dict[str, tuple[int, int]]) -> dict[str, Any]:
    workload = Workload(quant=quant, dtype="bf16")
    try:
        weights = next(part for part in estimate(facts, workload).components if part.id == "weights")
    except (HubauditError, StopIteration) as error:
        return {"error": str(error)}
    return {
        "theirs": true_bytes(model, quant, chosen),
        "ours": weights.bytes,
        "low": weights.low_bytes,
        "high": weights.high_bytes,
        "exactness": weights.exactness,
    }


def main() -> None:
    """Write the rows of all classes, of those that names of files tell alone (``--by-name``), or of the types that are given."""
    path, *wanted = sys.argv[1:]
    layers: dict[str, Any] = {}
    with Path(path).open("w", encoding="utf-8") as out:
        for model_type, class_name in classes():
            if wanted and not (is_compared(class_name) if wanted == ["--by-name"] else model_type in wanted):
                continue
            try:
                found = row(model_type, class_name, layers)
            except Exception as error:  # noqa: BLE001 -- whatever a class raises of its own defaults
                found = {"type": model_type, "class": class_name, "error": f"{type(error).__name__}: {error}"[:200]}
            out.write(json.dumps(found) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
