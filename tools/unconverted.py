"""Writes hubaudit/data/unconverted.json: the linear modules that transformers leaves alone when it quantizes a model while loading it.

    python tools/unconverted.py     (needs torch and transformers; their version is written into the table)

For each model class that the skeleton tables describe: the keys of ``get_modules_to_not_convert`` (output embedding, tied weights, module of the
last parameter, ``_keep_in_fp32_modules``) that meet at least one ``nn.Linear`` or ``Conv1D`` of the class's model. A key is what
``should_convert_module`` takes: the start of a module's name as a regular expression, or its end. ``subclasses`` are ends of the names of modules
of classes derived from ``nn.Linear``, which only some quantizers take for one. Classes with the same keys share a row.
"""

from __future__ import annotations

import importlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

from hubaudit.facts.skeleton import described_classes, described_model_types

TARGET = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "unconverted.json"
#: Classes that transformers does not export at its top.
_ELSEWHERE = {
    "SmolVLMVisionTransformer": "transformers.models.smolvlm.modeling_smolvlm",
    "Idefics3VisionTransformer": "transformers.models.idefics3.modeling_idefics3",
    "Qwen2VisionTransformerPretrainedModel": "transformers.models.qwen2_vl.modeling_qwen2_vl",
}
_FEW_LAYERS: tuple[dict[str, Any], ...] = (
    {},
    {"output_proj_dims": 56},
    {"head_dim": 16},
    {"moe_intermediate_size": 64},
    {"n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1},
)


def unconverted(model: Any) -> list[str]:
    """The keys that keep a module of this model from being converted."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import HfQuantizer
    from transformers.quantizers.quantizers_utils import should_convert_module

    keys = HfQuantizer.get_modules_to_not_convert(model, None, model._keep_in_fp32_modules)
    names = [name for name, module in model.named_modules() if type(module) is nn.Linear or isinstance(module, Conv1D)]
    return sorted(key for key in keys if any(not should_convert_module(name, [key]) for name in names))


def subclasses(model: Any) -> list[str]:
    """The shortest ends of names that all modules of classes derived from ``nn.Linear`` have, and no ``nn.Linear`` has."""
    from torch import nn

    plain = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    found = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and type(module) is not nn.Linear:
            words = name.split(".")
            ends = (".".join(words[-count:]) for count in range(1, len(words) + 1))
            found.add(next(end for end in ends if not any(other.endswith(end) for other in plain)))
    return sorted(found)


def built(name: str) -> Any:
    """A model of that class with its configuration's defaults, on the meta device."""
    import torch
    import transformers

    module = _ELSEWHERE.get(name)
    made = getattr(transformers if module is None else importlib.import_module(module), name)
    for said in _FEW_LAYERS:
        try:
            with torch.device("meta"):
                return made(made.config_class(**said))
        except Exception as error:  # noqa: BLE001 -- whatever a class raises, it refuses its defaults
            refused = error
    raise ValueError(f"{name}: {refused}")


def rules() -> dict[str, Any]:
    """The table, freshly read from the installed transformers."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    by_keys: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    unknown = []
    for name in sorted({name for kind in described_model_types() for name in described_classes(kind)}):
        try:
            model = built(name)
        except ValueError as error:
            print(error)
            unknown.append(name)
            continue
        keys = tuple(unconverted(model))
        by_keys.setdefault((keys, tuple(subclasses(model))), []).append(name)
        if any(re.search(r"\.\d+", key) for key in keys):
            print(f"{name}: a key names one layer: {keys}")
            by_keys[keys, tuple(subclasses(model))].remove(name)
            unknown.append(name)
    rows = [
        {"keys": list(keys), "subclasses": list(others), "architectures": names}
        for (keys, others), names in sorted(by_keys.items())
        if names
    ]
    return {"source": f"transformers {transformers.__version__}, quantizers/base.py", "rows": rows, "unknown": unknown}


def text() -> str:
    """The table as the file holds it: one set of keys a line."""
    table = rules()
    rows = ",\n".join(f"  {json.dumps(row)}" for row in table["rows"])
    return f'{{"source": {json.dumps(table["source"])},\n "unknown": {json.dumps(table["unknown"])},\n "rows": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    TARGET.write_text(text(), encoding="utf-8")
    print(f"wrote {TARGET.name}")
