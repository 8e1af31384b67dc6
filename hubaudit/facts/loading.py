"""What loading makes of stored tensors when no dtype is asked for: which dtype, which tensors keep their own, and so how many bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of, is_float
from hubaudit.facts.made import made_parameters
from hubaudit.facts.packed_loading import stays_as_stored
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.types import ModelFacts, Sourced, TensorGroup

#: The role of an adapter's tensors, which lie on top of the model's own weights.
ADAPTER = "adapter"
#: The kind of an adapter's tensors that PEFT trains and holds in float32; copies of the model's own modules keep their kind.
TUNER = "tuner"
_LEAST_COMPUTE_BITS = 16


def load_dtype(said: Sourced[str]) -> str:
    """The dtype of floating weights once loaded: the config's or the files' (``dtype="auto"``, the default of transformers 5).

    Floats narrower than 16 bit are computed with in bf16; where no dtype is known, torch's own default holds.
    """
    if said.value is None:
        return "F32"
    return said.value if bits_of()[said.value] >= _LEAST_COMPUTE_BITS else "BF16"


def converts(group: TensorGroup) -> bool:
    """Whether loading casts the group to the load dtype; a tensor known from a config alone has no dtype of its own yet."""
    return group.dtype == "" or is_float(group.dtype)


def kept_in_float32(architecture: str | None, dtype: str) -> Callable[[TensorGroup], bool]:
    """Which tensors the model class keeps in float32 when it is loaded as ``dtype``, by the group's pattern."""
    kept = names_kept_in_float32(architecture, dtype)
    return lambda group: kept(group.pattern)


def names_kept_in_float32(architecture: str | None, dtype: str) -> Callable[[str], bool]:
    """Which parameters the model class keeps in float32 when it is loaded as ``dtype``: `_get_dtype_plan`, transformers 5.23.0."""
    names = _float32_names(architecture, dtype)
    if not names:
        return lambda _: False
    wanted = re.compile("|".join(map(_as_pattern, names)))
    return lambda name: wanted.search(name) is not None


def not_found_in_float32(facts: ModelFacts, dtype: str) -> tuple[str, ...]:
    """Names of modules that the class keeps in float32 and no tensor bears: files may call them otherwise, and loading renames."""
    patterns = [group.pattern for group in loaded_groups(facts)]
    names = _float32_names(facts.architecture, dtype)
    return tuple(name for name in names if not any(map(re.compile(_as_pattern(name)).search, patterns)))


def _float32_names(architecture: str | None, dtype: str) -> list[str]:
    row = table("load_rules.json")["architectures"].get(architecture, {})
    names = list(row.get("fp32_always", ())) if dtype in ("F16", "BF16") else []
    return names + list(row.get("fp32_under_fp16", ()) if dtype == "F16" else ())


def _as_pattern(name: str) -> str:
    return name.replace("*", ".*")


def loaded_groups(facts: ModelFacts) -> list[TensorGroup]:
    """What a runtime builds of the model; an adapter on top is apart."""
    return [group for group in facts.tensor_groups if group.extra is None and group.role != ADAPTER]


def stays_packed(facts: ModelFacts) -> bool:
    """Whether the weights are held as the files have them: quantized ones, and those of GGUF."""
    return (facts.quantization is not None or facts.format == "gguf") and facts.stored_bytes is not None


def unread_packing(facts: ModelFacts) -> str | None:
    """Why the size of the weights is not known though the config implies their shapes: it calls them quantized, and no file was read that shows how."""
    quantization = facts.quantization
    if quantization is None or facts.stored_bytes is not None or facts.components:
        return None
    return f"quantized by {shown(quantization.method)} ({quantization.where}), and no weights were read that show how they are packed"


def resident_bytes(facts: ModelFacts) -> int | None:
    """Bytes of one model's weights once loaded with no dtype asked for; ``None`` where no tensors are known.

    Of a quantized checkpoint the packed weights and their scales stay as they are, and what is not quantized is cast as ever; of GGUF all stays.
    """
    groups = [group for group in facts.tensor_groups if group.extra is None]
    if not groups or unread_packing(facts) is not None:
        return None
    dtype = load_dtype(facts.dtype)
    kept = kept_in_float32(facts.architecture, dtype)
    as_stored = stays_as_stored(facts) if stays_packed(facts) else lambda _: False
    sizes = [
        group.stored_bytes
        if as_stored(group)
        else _group_bytes(group, dtype, is_float32=kept(group) or group.kind == TUNER)
        for group in groups
    ]
    made = made_parameters(facts) * bits_of()[dtype] // 8
    return made + sum(size for size in sizes if size is not None) if None not in sizes else None


def with_residence(facts: ModelFacts) -> ModelFacts:
    """``facts`` with the bytes that they take once loaded."""
    return replace(facts, resident_bytes=resident_bytes(facts))


def _group_bytes(group: TensorGroup, dtype: str, *, is_float32: bool) -> int | None:
    if not converts(group):
        return group.stored_bytes
    if group.parameters is None:
        return None
    width = max(32, bits_of().get(group.dtype, 0)) if group.kind == TUNER else 32 if is_float32 else bits_of()[dtype]
    return group.parameters * width // 8
