"""Writes hubaudit/data/linear_names.json: what the names of a checkpoint's tensors hide of its linear layers, by class.

    python -m tools.linear_names [SEEN.jsonl]     (needs torch and transformers; their version is written into the table)

For every class of transformers that the skeleton tables do not describe: its shallow default on the meta device, its tensors named as
``save_pretrained`` names them, and among these the ones that become a module which transformers' bitsandbytes integration converts. The two lists of
a row are where the names alone would tell otherwise: ``kept`` stay as they are, ``converted`` do not. SEEN keeps the answers of a run that was cut short.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hubaudit.estimate.linear_names import kind_by_name
from hubaudit.facts.loading import loaded_groups
from hubaudit.facts.repository import understand
from hubaudit.facts.skeleton import described_classes, described_model_types
from tools.class_survey import built, classes, converted, saved, snapshot
from tools.meta_caches import tools

TARGET = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "linear_names.json"


def names(model: Any) -> dict[str, list[str]]:
    """The two lists for one model."""
    torch = tools().torch
    weights = {f"{name}.weight" for name in converted(model)}
    state = {
        name: tensor if name in weights else tensor.to(torch.float64) for name, tensor in model.state_dict().items()
    }  # the dtype tells a tensor's later names from the others', through renaming, splitting and transposing
    told = saved(model, state)
    groups = [group for group in loaded_groups(understand(snapshot(model, told))) if len(group.shape) > 1]
    theirs = {group.pattern for group in groups if group.dtype == "BF16"}
    both = theirs & {group.pattern for group in groups if group.dtype == "F64"}
    ours = {group.pattern for group in groups if kind_by_name(group) in ("linear", "conv1d")}
    return {"kept": sorted(ours - theirs), "converted": sorted(theirs - ours), "both": sorted(both)}


def survey(seen: Path) -> dict[str, Any]:
    """The lists of every class, those of an earlier run taken as they are."""
    known = {row["class"]: row for row in map(json.loads, seen.read_text().splitlines())} if seen.exists() else {}
    described = {name for kind in described_model_types() for name in described_classes(kind)}
    layers: dict[str, Any] = {}
    with seen.open("a", encoding="utf-8") as out:
        for model_type, name in classes():
            if name in known or name in described:
                continue
            try:
                row = {"class": name, **names(built(model_type, name, layers))}
            except Exception as error:  # noqa: BLE001 -- whatever a class raises of its own defaults
                row = {"class": name, "error": f"{type(error).__name__}: {error}"[:120]}
            known[name] = row
            out.write(json.dumps(row) + "\n")
            out.flush()
    return known


def text(found: dict[str, Any]) -> str:
    """The table as the file holds it: classes with the same names share a row."""
    import transformers

    rows: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for name, row in sorted(found.items()):
        if "error" not in row:
            rows.setdefault((tuple(row["kept"]), tuple(row["converted"])), []).append(name)
    lines = [
        f"  {json.dumps({'kept': kept, 'converted': others, 'architectures': names})}"
        for (kept, others), names in sorted(rows.items())
    ]
    refused = sorted(name for name, row in found.items() if "error" in row)
    source = f"modules of transformers {transformers.__version__}, quantizers/base.py and integrations/bitsandbytes.py"
    return (
        f'{{"source": {json.dumps(source)},\n "unknown": {json.dumps(refused)},\n "rows": [\n'
        + ",\n".join(lines)
        + "\n]}\n"
    )


if __name__ == "__main__":
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("linear_names.jsonl")
    TARGET.write_text(text(survey(kept)), encoding="utf-8")
