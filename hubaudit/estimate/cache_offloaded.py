"""transformers' offloaded caches: what stays on the device while the rest waits in the host's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.estimate.cache import Counting, as_they_come, cache_components, grown, owned_tensors, states
from hubaudit.estimate.cache_static import static_components, static_counting, static_tensors
from hubaudit.estimate.component import Parts
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.estimate.setting import Setting
    from hubaudit.types import CacheTensor, Component, LayerSpec, ModelFacts

_SOURCE = (
    "transformers 5.23.0 cache_utils.py, Cache.update: a layer is fetched while the one before it runs, and sent back after its own; "
    "of the static cache sliding layers stay (offload_only_non_sliding), of either one states and layers that hold a state"
)


def offloaded_components(facts: ModelFacts, setting: Setting) -> Parts:
    """The two layers in a row that keep most, of those that are sent away, and all that stays; the rest is told in the notes."""
    plan = facts.layer_plan or ()
    is_static = setting.cache == "offloaded_static"
    whole = static_components(facts, setting) if is_static else Parts(components=cache_components(facts, setting))
    counting = _sourced(static_counting(facts, setting) if is_static else as_they_come(facts))
    layers = [(layer, static_tensors((layer,)) if is_static else owned_tensors((layer,))) for layer in plan]
    leaving = [tensors for layer, tensors in layers if _leaves(layer, tensors, is_static=is_static)]
    staying = [
        tensor for layer, tensors in layers if not _leaves(layer, tensors, is_static=is_static) for tensor in tensors
    ]
    kept = [
        *_resident("kv_cache", leaving, staying, counting, setting, facts, crossing=False),
        *_resident("cross_cache", leaving, staying, counting, setting, facts, crossing=True),
    ]
    state = states([tensor for _, tensors in layers for tensor in tensors], setting, facts)
    # What stays was read in the code, not measured on a device.
    found = (*(replace(part, exactness="formula") for part in kept), *((state,) if state else ()))
    away_bytes = sum(part.bytes for part in whole.components) - sum(part.bytes for part in found)
    said = (f"{format_bytes(away_bytes)} of the cache wait in the host's memory",) if away_bytes else ()
    return Parts(components=found, assumptions=(*whole.assumptions, *said))


def _sourced(counting: Counting) -> Counting:
    return Counting(formulas=counting.formulas, inputs=counting.inputs, source=_SOURCE)


def _leaves(layer: LayerSpec, tensors: Iterable[CacheTensor], *, is_static: bool) -> bool:
    """Whether a layer is sent away after its turn."""
    tensors = list(tensors)
    if layer.shares_cache_with is not None or not any(tensor.elements_per_token for tensor in tensors):
        return False
    if any(tensor.fixed_elements for tensor in tensors):
        return False
    slides = any(tensor.window_tokens is not None for tensor in tensors if tensor.grows_with != "encoder_tokens")
    return not (is_static and slides)


def _resident(
    id: str,
    leaving: list[list[CacheTensor]],
    staying: list[CacheTensor],
    counting: Counting,
    setting: Setting,
    facts: ModelFacts,
    *,
    crossing: bool,
) -> list[Component]:
    """The largest pair of neighbours (the last is followed by the first) and the layers that stay, of one of the two caches."""

    def of_this(tensors: Iterable[CacheTensor]) -> list[CacheTensor]:
        return [
            tensor
            for tensor in tensors
            if tensor.elements_per_token and (tensor.grows_with == "encoder_tokens") is crossing
        ]

    parts = [of_this(tensors) for tensors in leaving]
    pairs = [[*one, *other] for one, other in zip(parts, [*parts[1:], *parts[:1]], strict=True)]
    pairs = pairs if len(parts) > 1 else parts
    rest = of_this(staying)
    made = [grown(id, [*pair, *rest], counting, setting, facts) for pair in pairs or [[]]]
    found = [part for part in made if part is not None]
    return [max(found, key=lambda part: part.bytes)] if found else []
