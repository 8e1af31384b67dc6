"""A run of generate() under transformers, phase by phase: what is alive while the model is loaded, reads the prompt, and writes a token."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from hubaudit.estimate.activations import (
    crossing_activations,
    decode_activations,
    kept_scores,
    layer_activations,
    logits,
    matrix_activations,
)
from hubaudit.estimate.component import Parts, component, given, known
from hubaudit.estimate.cuda_blocks import block_remainders
from hubaudit.estimate.dequantization import loading_temporaries, matrix_temporaries
from hubaudit.estimate.moments import Moment, estimate_at_worst
from hubaudit.estimate.overhead import cuda_context, workspace
from hubaudit.estimate.runtimes import transformers
from hubaudit.facts.loading import stays_packed
from hubaudit.types import Component, Omission

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hubaudit.estimate.quantized_weights import Split
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import CacheTensor, Estimate, LayerSpec, ModelFacts

_TABLES = "2 * layers * max_positions * head_dim * dtype_bits // 8"
_NO_CACHE = "the cache's layout is not known"


def estimate_generation(
    facts: ModelFacts, setting: Setting, weights: Parts, running: Parts, found: Split | None
) -> Estimate:
    """The worst moment of loading, prefill and decode, and every phase with its own worst.

    ``weights`` are the model's own, with an adapter's, once they are loaded; ``running`` what takes their place from the first pass on, where a loader
    unpacks them until then; ``found`` those that are quantized on load. The ends of the band are the largest of all moments', for the truth is no less than any
    moment's lower end.

    Raises:
        UsageError: transformers refuses the cache for this model.
    """
    standing = (*weights.components, *_beside_weights(facts, setting))
    at_work = tuple(next((new for new in running.components if new.id == part.id), part) for part in standing)
    after, omitted = _caches(facts, setting)
    omitted = (*weights.omitted, *omitted, *_unknown(facts, setting))
    moments = [
        Moment(phase="load", components=_alive(standing, [loading_temporaries(setting, found), cuda_context()])),
        *_prefill(facts, setting, at_work, found),
        *_decode(facts, setting, at_work, after),
    ]
    said = (*setting.assumptions, *weights.assumptions, *running.assumptions, *after.assumptions)
    if omitted:
        said = (*said, f"not in the total: {', '.join(part.id for part in omitted)}")
    made = estimate_at_worst(moments, assumptions=said, omitted=omitted)
    return replace(
        made,
        low_bytes=max(sum(part.low_bytes for part in moment.components) for moment in moments),
        high_bytes=max(sum(part.high_bytes for part in moment.components) for moment in moments),
    )


def _prefill(
    facts: ModelFacts, setting: Setting, standing: tuple[Component, ...], found: Split | None
) -> Iterator[Moment]:
    """The prompt's pass: in a layer, in a layer's quantized product, and at the head."""
    name = "forward" if facts.family in ("encoder", "other") else "prefill"
    cached, _ = _caches(facts, setting, at_prefill=True)
    # An encoder reads the prompt before anything is cached.
    fixed = standing if facts.family == "encoder-decoder" else (*standing, *cached.components)
    # And each prompt once: what it made of it is repeated for beams.
    reading = replace(setting, batch_size=setting.prompts) if facts.family == "encoder-decoder" else setting
    device = (workspace(), cuda_context())
    yield Moment(phase=name, components=_alive(fixed, [_made(layer_activations(facts, reading)), *device]))
    for which, product in matrix_temporaries(facts, reading, found):
        beside = _made(matrix_activations(facts, reading, which))
        yield Moment(phase=name, components=_alive(fixed, [beside, product, *device]))
    crossing = _made(crossing_activations(facts, setting))
    if crossing is not None:
        yield Moment(phase=name, components=_alive((*standing, *cached.components), [crossing, *device]))
    head = _made(logits(facts, setting, of_prompt=True))
    if head is not None:
        yield Moment(phase=name, components=_alive(fixed, [head, *device]))


def _decode(facts: ModelFacts, setting: Setting, standing: tuple[Component, ...], after: Parts) -> Iterator[Moment]:
    """The last of the new tokens, when the cache is at its largest: in its largest layer, and at the head."""
    if not setting.new_tokens.value or facts.family in ("encoder", "other"):
        return
    in_layers = [
        _made(decode_activations(facts, setting, _largest_layer(facts, setting))),
        kept_scores(facts, setting),
    ]
    device = (workspace(), cuda_context())
    alive = (*standing, *after.components)
    yield Moment(phase="decode", components=_alive(alive, [*in_layers, *device]))
    yield Moment(phase="decode", components=_alive(alive, [_made(logits(facts, setting, of_prompt=False)), *device]))


def _caches(facts: ModelFacts, setting: Setting, *, at_prefill: bool = False) -> tuple[Parts, tuple[Omission, ...]]:
    """What the cache holds after the last token, or when the prompt was read.

    A cache that grows keeps the whole prompt until the next token, in layers with a window too (transformers 5.23.0, cache_utils.py: what a
    sliding layer keeps is a view of all keys until then).
    """
    if facts.layer_plan is None:
        return Parts(), (Omission(id="kv_cache", reason=facts.layer_plan_reason or _NO_CACHE),)
    if at_prefill and "static" not in setting.cache:
        setting = replace(setting, new_tokens=given(0, "the prompt alone"))
        if setting.cache == "dynamic":
            facts = replace(facts, layer_plan=tuple(map(_without_windows, facts.layer_plan)))
    made = transformers.cache(facts, setting)
    return made, made.omitted


def _without_windows(layer: LayerSpec) -> LayerSpec:
    tensors = _unwindowed(layer.tensors)
    return layer if tensors == layer.tensors else replace(layer, tensors=tensors)


@lru_cache(maxsize=256)
def _unwindowed(tensors: tuple[CacheTensor, ...]) -> tuple[CacheTensor, ...]:
    """Layers of one kind have equal tensors, so a plan asks for few different ones."""
    return tuple(replace(tensor, window_tokens=None) for tensor in tensors)


def _largest_layer(facts: ModelFacts, setting: Setting) -> int:
    """Elements that the layer with the widest entries keeps for a token; 0 where the cache does not grow by copying."""
    if setting.cache != "dynamic":
        return 0
    widths = [
        sum(
            tensor.elements_per_token
            for tensor in layer.tensors
            if tensor.window_tokens is None and tensor.grows_with != "encoder_tokens"
        )
        for layer in facts.layer_plan or ()
    ]
    return max(widths, default=0)


def _beside_weights(facts: ModelFacts, setting: Setting) -> tuple[Component, ...]:
    """What the allocator hands out beyond them, and tables that older releases keep in every layer."""
    made = []
    if setting.conversion is None and not stays_packed(facts):
        made.append(block_remainders(facts, setting.dtype, pool_is_warmed=setting.release.pool_is_warmed))
    layers, positions, head_dim = known(facts.layers), known(facts.max_positions), known(facts.head_dim)
    if setting.release.rotary_tables and layers and positions and head_dim:
        inputs = {
            "layers": layers,
            "max_positions": positions,
            "head_dim": head_dim,
            "dtype_bits": setting.dtype_bits,
        }
        made.append(
            component("rotary_tables", "Buffer", _TABLES, inputs, exactness="formula", source=setting.release.source)
        )
    return tuple(part for part in made if part is not None and part.bytes)


def _unknown(facts: ModelFacts, setting: Setting) -> Iterator[Omission]:
    """Why activations and logits are not in the figure, where they are not."""
    for id_, made in (
        ("activations", layer_activations(facts, setting)),
        ("logits", logits(facts, setting, of_prompt=True)),
    ):
        if isinstance(made, str):
            yield Omission(id=id_, reason=made)


def _alive(standing: tuple[Component, ...], others: Iterable[Component | None]) -> tuple[Component, ...]:
    return (*standing, *(part for part in others if part is not None))


def _made(found: Component | str | None) -> Component | None:
    return found if isinstance(found, Component) else None
