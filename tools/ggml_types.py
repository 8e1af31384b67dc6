"""Write ``hubaudit/data/ggml_types.json``: every tensor type of ggml with its block, from the tables of the `gguf` package.

Run it with the pinned gguf installed: ``python tools/ggml_types.py`` (``--check`` compares instead of writing).

The rows are the package's own, unchanged. One of them differs from ggml's C struct: Q8_1 is 36 bytes there (two halves and 32 bytes,
ggml-common.h ``block_q8_1``), 40 in the package; it is a type for intermediate results that no model file stores.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

GGUF = "0.19.0"
OUTPUT = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "ggml_types.json"


def rows() -> list[dict[str, Any]]:
    """One row for each type of the installed package, ordered by id."""
    constants = importlib.import_module("gguf.constants")
    source = f"gguf {version('gguf')} (PyPI), gguf/constants.py: GGMLQuantizationType, GGML_QUANT_SIZES"
    found = []
    for ggml_type in sorted(constants.GGMLQuantizationType):
        block_elements, block_bytes = constants.GGML_QUANT_SIZES[ggml_type]
        found.append(
            {
                "id": int(ggml_type),
                "name": ggml_type.name,
                "block_elements": block_elements,
                "block_bytes": block_bytes,
                "source": source,
            }
        )
    return found


def text() -> str:
    """The file's whole text."""
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows())
    return f'{{\n  "types": [\n{lines}\n  ]\n}}\n'


def main() -> int:
    """Write the table, or compare it with ``--check``; refuses to run with another version of the package than the pinned one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    arguments = parser.parse_args()
    if version("gguf") != GGUF:
        print(f"gguf {version('gguf')} is installed, {GGUF} is pinned", file=sys.stderr)
        return 2
    if arguments.check:
        same = OUTPUT.read_text(encoding="utf-8") == text()
        print("up to date" if same else f"{OUTPUT.name} differs from gguf {GGUF}", file=sys.stderr)
        return 0 if same else 1
    OUTPUT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
