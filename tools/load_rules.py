"""Writes hubaudit/data/load_rules.json: what transformers does to single tensors while it loads a model, by architecture.

    python tools/load_rules.py     (needs torch and transformers; their version is written into the table)

For each architecture class: the parameters it keeps in float32 whatever the dtype asked for (``_keep_in_fp32_modules_strict``), those it keeps in
float32 under float16 only (``_keep_in_fp32_modules``), and those it makes itself and saves to no file (``_keys_to_ignore_on_save``), each with the
keys of the config that its sides come from. The first two are searched for in parameter names as regular expressions in which ``*`` means ``.*``
(``build_glob_alternation`` in core_model_loading.py).
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "load_rules.json"
_ATTRIBUTES = {
    "fp32_always": "_keep_in_fp32_modules_strict",
    "fp32_under_fp16": "_keep_in_fp32_modules",
    "not_saved": "_keys_to_ignore_on_save",
}
#: Sizes that tell which key of a config a side comes from.
_SIZES = {"max_position_embeddings": 52, "d_model": 48, "vocab_size": 60}


def rules() -> dict[str, Any]:
    """The table, freshly read from the installed transformers."""
    import transformers
    from transformers.models.auto import modeling_auto

    names: set[str] = set()
    for attribute in vars(modeling_auto):
        if attribute.endswith("MAPPING_NAMES"):
            for classes in vars(modeling_auto)[attribute].values():
                names.update([classes] if isinstance(classes, str) else classes)
    table = {}
    for name in sorted(names):
        row = _row(getattr(transformers, name, None))
        if row:
            table[name] = row
    return {"source": f"class attributes of transformers {transformers.__version__}", "architectures": table}


def _row(architecture: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, attribute in _ATTRIBUTES.items():
        values = getattr(architecture, attribute, None)
        if values:
            row[key] = sorted(values)
    if "not_saved" in row:
        row["not_saved"] = {name: _sides(architecture, name) for name in row["not_saved"]}
    return row


def _sides(architecture: Any, name: str) -> list[str]:
    """The keys of the config that a parameter's sides come from: each is given a size that nothing else has. Empty where a side is none of theirs."""
    import torch

    config = architecture.config_class(**_SIZES, pad_token_id=0)
    with torch.device("meta"):
        shape = architecture(config).get_parameter(name).shape
    keys = {value: key for key, value in _SIZES.items()}
    return [keys[side] for side in shape] if all(side in keys for side in shape) else []


def text() -> str:
    """The table as the file holds it: one architecture a line."""
    table = rules()
    lines = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table["architectures"].items()]
    return f'{{"source": {json.dumps(table["source"])},\n "architectures": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    importlib.import_module("torch")
    TARGET.write_text(text(), encoding="utf-8")
    print(f"{TARGET.name}: {len(rules()['architectures'])} architectures")
