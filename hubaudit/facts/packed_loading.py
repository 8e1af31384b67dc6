"""What a loader holds of weights that the files hold packed: which tensors stay as they are, which are cast, and what unpacking makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.types import ModelFacts, TensorGroup

_SCALE = "scale"
_NARROWEST_SCALE_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What transformers holds of one method's checkpoints while they run, as data/packed_loading.toml says.

    ``where`` is what it takes for weights to stay packed, ``None`` where nothing; ``note`` is why they do not. With ``keeps_weights`` weights that are
    not quantized keep the dtype of the files too.
    """

    held: Literal["packed", "unpacked", "refused"]
    where: str | None
    note: str | None
    keeps_weights: bool
    source: str


@cache
def _holdings() -> dict[str, Holding]:
    rows: list[dict[str, Any]] = table("packed_loading.toml")["method"]
    return {
        name: Holding(
            held=row["held"],
            where=row.get("where"),
            note=row.get("note"),
            keeps_weights=row.get("keeps_weights", False),
            source=row["source"],
        )
        for row in rows
        for name in row["called"]
    }


def holding_of(facts: ModelFacts) -> Holding | None:
    """How transformers holds the model's quantized weights; ``None`` where it is not quantized, or by a method that no row names."""
    if facts.quantization is None:
        return None
    return _holdings().get(facts.quantization.method.strip().lower().replace("_", "-"))


def stays_as_stored(facts: ModelFacts) -> Callable[[TensorGroup], bool]:
    """Which tensors of a packed checkpoint a loader leaves as the files have them: quantized weights, their scales, and what the method leaves too."""
    if facts.format == "gguf":
        return lambda _: True
    holding = holding_of(facts)
    keeps_weights = holding is not None and holding.keeps_weights

    def as_stored(group: TensorGroup) -> bool:
        is_packed = group.bits is not None or group.kind == _SCALE or group.parameters is None
        return is_packed or (keeps_weights and group.pattern.endswith(".weight"))

    return as_stored


def unpacked_bytes(group: TensorGroup, bits: int) -> int:
    """Bytes of a group of quantized weights once every value has ``bits``; of scales, which stay, those of less than 16 bit too."""
    if group.bits is not None:
        return (group.parameters or 0) * bits // 8
    width = bits_of().get(group.dtype, bits)
    is_scale_cast = width < _NARROWEST_SCALE_BITS
    return group.stored_bytes * bits // width if is_scale_cast else group.stored_bytes
