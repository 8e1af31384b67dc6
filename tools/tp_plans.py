"""Writes hubaudit/data/tp_plans.json: how transformers splits each model type's modules over devices.

    python tools/tp_plans.py     (needs torch and transformers; their version is written into the table)

For each model type: the tensor-parallel and the expert-parallel plan of its text model (``base_model_tp_plan`` and ``base_model_ep_plan`` of the
config class), with the head's rule (``_tp_plan`` of the class behind AutoModelForCausalLM or AutoModelForImageTextToText) and that of the
input embeddings, which ``init_parallel_plans`` adds to every plan (distributed/mixin.py). Equal plans are written once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "tp_plans.json"


def plans() -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """The two plans of every model type that has one, freshly read from the installed transformers."""
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    heads = {
        **modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    }
    found = {}
    for model_type in sorted(heads):
        names = heads[model_type]
        head = getattr(transformers, names if isinstance(names, str) else names[0], None)
        config = CONFIG_MAPPING[model_type]
        text = getattr(config, "sub_configs", {}).get("text_config")
        for one in (config, text if isinstance(text, type) else None):
            tp = dict(getattr(one, "base_model_tp_plan", None) or {})
            ep = dict(getattr(one, "base_model_ep_plan", None) or {})
            if tp or ep:
                if tp:
                    tp = {"embed_tokens": "embedding_rowwise"} | tp | dict(getattr(head, "_tp_plan", None) or {})
                found[model_type] = (tp, ep)
                break
    return found


def text() -> str:
    """The table as the file holds it: one plan a line, and one type a line."""
    import transformers

    numbers: dict[str, int] = {}
    types: dict[str, tuple[int | None, int | None]] = {}
    for model_type, pair in plans().items():
        types[model_type] = tuple(  # type: ignore[assignment]
            numbers.setdefault(json.dumps(plan), len(numbers)) if plan else None for plan in pair
        )
    head: dict[str, Any] = {"source": f"config and model classes of transformers {transformers.__version__}"}
    rows = ",\n".join(f"  {row}" for row in numbers)
    names = ",\n".join(f"  {json.dumps(name)}: {json.dumps(pair)}" for name, pair in types.items())
    return f'{json.dumps(head)[:-1]},\n "plans": [\n{rows}\n ],\n "types": {{\n{names}\n }}}}\n'


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
