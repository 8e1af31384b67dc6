"""Element types by name: the table of dtypes.toml, and the spellings that users and configs write."""

from __future__ import annotations

from functools import cache

from hubaudit.data import table

#: Short spellings of the command line; torch's own names are read from the table.
_SHORT = {
    "fp32": "F32",
    "float": "F32",
    "fp16": "F16",
    "half": "F16",
    "bf16": "BF16",
    "fp64": "F64",
    "double": "F64",
    "fp8": "F8_E4M3",
    "fp8_e4m3": "F8_E4M3",
    "fp8_e5m2": "F8_E5M2",
}


@cache
def bits_of() -> dict[str, int]:
    """Width in bits of every known element type, by its safetensors name."""
    return {name: row["bits"] for name, row in table("dtypes.toml").items()}


@cache
def is_float(dtype: str) -> bool:
    """Whether values of this type are floating point, so that a model loaded in another dtype has them converted."""
    row = table("dtypes.toml").get(dtype)
    return row is not None and row["kind"] == "float"


@cache
def _spellings() -> dict[str, str]:
    rows = table("dtypes.toml")
    names = {name.lower(): name for name in rows} | {row["torch"]: name for name, row in rows.items() if "torch" in row}
    return names | _SHORT


def dtype_named(text: str) -> str | None:
    """The table's name for ``"bfloat16"``, ``"torch.bfloat16"``, ``"bf16"`` or ``"BF16"``; ``None`` where it is no known type."""
    return _spellings().get(text.strip().lower().removeprefix("torch."))


def short_name(dtype: str) -> str:
    """The spelling of the command line, for people: ``"bf16"`` for ``"BF16"``, ``"fp32"`` for ``"F32"``."""
    return {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "F64": "fp64"}.get(dtype, dtype.lower())
