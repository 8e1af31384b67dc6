"""Writes hubaudit/data/by_design.json: model types whose own models, as transformers makes and saves them, differ from their config's numbers.

    python -m tools.by_design [SEEN.jsonl]     (needs torch and transformers; their version is written into the table)

For every class that no table describes, and of other model types the classes that generate, else the plain one: the shallow default on the meta device, its tensors named as ``save_pretrained``
names them, and the subjects on which the audit would call config and files contradictory. An embedding may be narrower than the model, a vocabulary a
row longer, heads fewer than the config says: there the number is of something else, and a difference is no finding. SEEN keeps the answers of a run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from hubaudit.estimate.linear_names import is_compared
from hubaudit.facts import witnesses
from hubaudit.facts.repository import understand
from tools.class_survey import built, classes, saved, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

TARGET = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "by_design.json"
_GENERATES = ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "MTModel", "ForMaskedLM", "ForPreTraining")
_MOST_CLASSES = 3
#: What a checkpoint's files alone decide, whatever its class.
_SAID_OF_FILES = frozenset({"dtype"})


def subjects(model: Any) -> list[str]:
    """What the audit would call a contradiction in this model, were the table empty."""
    with mock.patch.object(witnesses, "_usual_differences", return_value=frozenset()):
        facts = understand(snapshot(model, saved(model)))
    return sorted({one.subject for one in facts.disagreements} - _SAID_OF_FILES)


def survey(seen: Path) -> list[dict[str, Any]]:
    """A row a class, those of an earlier run taken as they are."""
    rows = [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []
    known = {row["class"] for row in rows}
    layers: dict[str, Any] = {}
    with seen.open("a", encoding="utf-8") as out:
        for model_type, name in _chosen():
            if name in known:
                continue
            try:
                row = {"type": model_type, "class": name, "subjects": subjects(built(model_type, name, layers))}
            except Exception as error:  # noqa: BLE001 -- whatever a class raises of its own defaults
                row = {"type": model_type, "class": name, "error": f"{type(error).__name__}: {error}"[:120]}
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
    return rows


def _chosen() -> Iterable[tuple[str, str]]:
    by_type: dict[str, list[str]] = {}
    for model_type, name in classes():
        by_type.setdefault(model_type, []).append(name)
        if is_compared(name):  # no table describes it, so nothing else would tell
            yield model_type, name
    for model_type, names in by_type.items():
        found = (
            [name for name in names if name.endswith(_GENERATES)]
            or [name for name in names if name.endswith("Model")]
            or names[:1]
        )
        yield from ((model_type, name) for name in found[:_MOST_CLASSES])


def text(rows: list[dict[str, Any]]) -> str:
    """The table as the file holds it: one model type a line."""
    import transformers

    by_type: dict[str, set[str]] = {}
    for row in rows:
        by_type.setdefault(row["type"], set()).update(row.get("subjects", ()))
    lines = [
        f"  {json.dumps(name)}: {json.dumps(sorted(found), ensure_ascii=False)}"
        for name, found in sorted(by_type.items())
        if found
    ]
    source = f"models of transformers {transformers.__version__} with their class's defaults, made and saved by it"
    return f'{{"source": {json.dumps(source)},\n "types": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("by_design.jsonl")
    TARGET.write_text(text(survey(kept)), encoding="utf-8")
