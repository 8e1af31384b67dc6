"""Write ``hubaudit/data/torch_types.json``: the dtypes, storage classes and globals that torch itself reads from a checkpoint.

Run it with the pinned torch installed: ``python tools/torch_types.py`` (``--check`` compares instead of writing).

``globals`` is the list that ``torch.load(weights_only=True)`` accepts by default: what a checkpoint of plain weights may name. Widths are
measured on tensors of each dtype, because the packed quantized ones hold several elements in a byte.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

TORCH = "2.13.0"
OUTPUT = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "torch_types.json"


def _source(what: str) -> str:
    return f"PyTorch {TORCH}, {what}"


def dtypes(torch: Any) -> list[dict[str, Any]]:
    """Each dtype that a storage can have: bits of one element, and bytes of one item of its storage."""
    rows = []
    for dtype in sorted({*torch.storage._dtype_to_storage_type_map(), *torch.storage._new_dtypes()}, key=str):
        element_bits = (
            _packed_bits(torch, dtype)
            if str(dtype) in {"torch.quint4x2", "torch.quint2x4"}
            else 8 * _item_bytes(torch, dtype)
        )
        rows.append(
            {
                "name": str(dtype).removeprefix("torch."),
                "element_bits": element_bits,
                "item_bytes": _item_bytes(torch, dtype),
                "source": _source("torch/storage.py: _dtype_to_storage_type_map, _new_dtypes; widths measured"),
            }
        )
    return rows


def _item_bytes(torch: Any, dtype: Any) -> int:
    return int(torch.empty(0, dtype=dtype).element_size())


def _packed_bits(torch: Any, dtype: Any) -> int:
    """Bits of one element of a quantized dtype that packs several into a byte."""
    rows, columns = 4, 64
    tensor = torch.quantize_per_channel(torch.zeros(rows, columns), torch.ones(rows), torch.zeros(rows), 0, dtype)
    return int(tensor.untyped_storage().nbytes()) * 8 // (rows * columns)


def storages(torch: Any) -> list[dict[str, Any]]:
    """The storage classes that name a dtype; ``UntypedStorage``, counted in bytes, is the one that does not."""
    source = _source("torch/storage.py: _dtype_to_storage_type_map")
    named = torch.storage._dtype_to_storage_type_map()
    rows = [
        {"name": name, "dtype": str(dtype).removeprefix("torch."), "source": source} for dtype, name in named.items()
    ]
    return sorted(rows, key=lambda row: str(row["name"]))


def accepted_globals() -> list[dict[str, Any]]:
    """Every name that a checkpoint may refer to and still be loaded with ``weights_only=True``."""
    allowed = importlib.import_module("torch._weights_only_unpickler")._get_allowed_globals()
    source = _source("torch/_weights_only_unpickler.py: _get_allowed_globals")
    return [{"name": name, "source": source} for name in sorted(allowed)]


def text() -> str:
    """The file's whole text."""
    torch = importlib.import_module("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantized dtypes are deprecated, and are still read
        parts = {"dtypes": dtypes(torch), "storages": storages(torch), "globals": accepted_globals()}
    blocks = []
    for key, rows in parts.items():
        lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        blocks.append(f'  "{key}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def main() -> int:
    """Write the table, or compare it with ``--check``; refuses to run with another version of torch than the pinned one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    arguments = parser.parse_args()
    installed = importlib.import_module("torch").__version__.partition("+")[0]
    if installed != TORCH:
        print(f"torch {installed} is installed, {TORCH} is pinned", file=sys.stderr)
        return 2
    if arguments.check:
        same = OUTPUT.read_text(encoding="utf-8") == text()
        print("up to date" if same else f"{OUTPUT.name} differs from torch {TORCH}", file=sys.stderr)
        return 0 if same else 1
    OUTPUT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
