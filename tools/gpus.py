"""Write ``hubaudit/data/gpus.json``: the catalogue of accelerators, from the facts in ``tools/gpus.toml``.

``python tools/gpus.py`` writes, ``python tools/gpus.py --check`` compares and exits with 1 where they differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FACTS = ROOT / "tools" / "gpus.toml"
OUTPUT = ROOT / "hubaudit" / "data" / "gpus.json"
GIB = 2**30
_UNITS = {"B": 1, "MiB": 2**20, "GiB": GIB}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) (B|MiB|GiB)")
_SIZE_WORD = re.compile(r"\s*\b\d+GB$|,.*")

Row = dict[str, Any]


def rows(facts: Row) -> list[Row]:
    """Every row of the catalogue."""
    documents = facts["documents"]
    made = [_row(vendor["name"], gpu, documents) for vendor in facts["vendor"] for gpu in vendor["gpus"]]
    return [*made, *_apple(facts["apple"], documents)]


def _row(vendor: str, gpu: Row, documents: dict[str, str]) -> Row:
    memory = gpu["memory"] * GIB
    row = {
        "name": gpu["name"],
        "vendor": vendor,
        "family": gpu.get("family") or _SIZE_WORD.sub("", gpu["name"]),
        "aliases": gpu.get("aliases", []),
        "memory_bytes": memory,
        "memory_source": documents[gpu["from"]],
    }
    if "reported" not in gpu:
        return row | {
            "usable_bytes": memory,
            "usable_source": "marketing",
            "usable_evidence": "no program's word was found",
        }
    return row | {
        "usable_bytes": size_bytes(gpu["reported"]),
        "usable_source": "driver" if gpu["reader"] == "nvidia-smi" else "process",
        "usable_evidence": f"{gpu['reported']}, {gpu['reader']}: {_evidence(gpu, documents)}",
    }


def _apple(apple: Row, documents: dict[str, str]) -> list[Row]:
    measured = {row["memory"]: row for row in apple["working_sets"]}
    return [
        {
            "name": f"{chip['name']} {memory}GB",
            "vendor": "Apple",
            "family": chip["name"],
            "aliases": [],
            "memory_bytes": memory * GIB,
            "memory_source": documents[apple["from"]],
            **_working_set(memory, measured, apple["fractions"], documents),
        }
        for chip in apple["chips"]
        for memory in chip["memory"]
    ]


def _working_set(memory: int, measured: dict[int, Row], fractions: list[Row], documents: dict[str, str]) -> Row:
    if memory in measured:
        row = measured[memory]
        return {
            "usable_bytes": size_bytes(row["reported"]),
            "usable_source": "process",
            "usable_evidence": f"{row['reported']}, Metal on a Mac with {memory} GB: {_evidence(row, documents)}",
        }
    part, whole = next(row["of"] for row in fractions if memory <= row["below"])
    return {
        "usable_bytes": memory * GIB * part // whole,
        "usable_source": "rule",
        "usable_evidence": f"{part}/{whole} of the memory, as Metal gives on the sizes measured around it",
    }


def _evidence(fact: Row, documents: dict[str, str]) -> str:
    places = [f"`{fact['log']}`"] if "log" in fact else []
    if "url" in fact:
        places.append(re.sub(r"\b(\w+)\b", lambda word: documents.get(word[1], word[1]), fact["url"]))
    return "; ".join(places)


def size_bytes(text: str) -> int:
    """Bytes of ``"7753 MiB"``, rounded down."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a size with its unit: {text!r}")
    return int(Fraction(match[1]) * _UNITS[match[2]])


def problems(made: list[Row]) -> list[str]:
    """What cannot be true of the rows: a name twice, a card with more than it carries, or with much less."""
    names = Counter(row["name"] for row in made)
    found = [f"{name}: twice" for name, times in names.items() if times > 1]
    for row in made:
        lowest = Fraction(13, 20) if row["vendor"] == "Apple" else Fraction(9, 10)
        if not lowest * row["memory_bytes"] <= row["usable_bytes"] <= row["memory_bytes"]:
            found.append(f"{row['name']}: {row['usable_bytes']} of {row['memory_bytes']} bytes")
    return found


def text() -> str:
    """The file's whole text, a row a line."""
    made = rows(tomllib.loads(FACTS.read_text(encoding="utf-8")))
    wrong = problems(made)
    if wrong:
        raise ValueError("; ".join(wrong))
    lines = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in made)
    return f'{{\n  "gpus": [\n{lines}\n  ]\n}}\n'


def main() -> int:
    """Write the catalogue, or compare it with ``--check``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    if not parser.parse_args().check:
        OUTPUT.write_text(text(), encoding="utf-8")
        return 0
    same = OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text()
    print("up to date" if same else f"{OUTPUT.name} is not what tools/gpus.toml makes", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
