"""How wide the values of a step are: each stream's bytes under a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of

if TYPE_CHECKING:
    from hubaudit.estimate.training.setting import TrainSetting

_BYTE = 8
_FLOAT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Bytes of one value of each stream: ``stream`` between layers, ``inner`` of products and attention, ``adapter`` of adapters.

    With ``casts`` autocast gives every product a 16-bit cast of its own of an input that is wider. ``is_trained`` is false for the base
    under adapters: its weights need no gradient, and so autograd keeps no input for it. ``drops``: adapters read a dropped copy of their input each;
    ``has_magnitudes``: they are DoRA's. ``mask`` and ``score_mask`` are dropout's of the stream and of attention's scores, 0 without dropout.
    """

    stream: int
    inner: int
    head: int
    adapter: int
    casts: bool
    is_trained: bool
    drops: bool = False
    has_magnitudes: bool = False
    mask: int = 1
    score_mask: int = 1


def flow_of(setting: TrainSetting) -> Flow:
    """How wide values are.

    A base that bitsandbytes holds is prepared for training (PEFT's ``prepare_model_for_kbit_training``): norms, embeddings and head in float32,
    so that the stream between layers is float32, and the quantized layers give back what they are given.
    """
    recipe = setting.recipe
    compute = bits_of()[recipe.compute] // _BYTE
    weights = recipe.weight_bits // _BYTE
    is_prepared = setting.is_prepared
    stream = _FLOAT if is_prepared else max(compute, weights)
    return Flow(
        stream=stream,
        inner=compute if recipe.autocast else stream,
        head=compute if recipe.autocast else stream,
        adapter=compute if recipe.autocast else max(_FLOAT, stream),
        casts=recipe.autocast and stream > compute,
        is_trained=setting.adapters is None,
        drops=setting.adapters is not None and setting.adapters.has_dropout,
        has_magnitudes=setting.adapters is not None and setting.adapters.variant == "dora",
    )
