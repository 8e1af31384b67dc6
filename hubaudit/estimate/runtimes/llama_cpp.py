"""llama.cpp: cells for the whole context at once, windows where it knows them, float32 states, and one graph's compute buffer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of
from hubaudit.errors import UsageError
from hubaudit.estimate.component import Input, Parts, component, given, known
from hubaudit.estimate.kv_dtype import TABLE
from hubaudit.estimate.overhead import banded
from hubaudit.estimate.runtimes.layer_parts import (
    LayerPart,
    NotModelledError,
    convolution_elements,
    is_convolution,
    kernel_width,
    layer_parts,
)
from hubaudit.estimate.runtimes.llama_cpp_compressed import compressed_cells, compressor_states, is_compressed
from hubaudit.types import Omission

if TYPE_CHECKING:
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts

_SECTION = "llama_cpp"
_CELLS = "ceil_div(prompt_tokens + new_tokens, pad_tokens) * pad_tokens"
_WINDOW_CELLS = f"ceil_div(min({_CELLS}, {{window}} + ubatch_tokens), pad_tokens) * pad_tokens"
_KV_SOURCE = "llama.cpp src/llama-kv-cache.cpp and llama-kv-cache-iswa.cpp at 2aef9767d982: one stream of cells a sequence (--parallel)"
_COMPUTE = "4 * ubatch_tokens * (vocab_size + hidden_size)"
_COMPUTE_SOURCE = "logits of one ubatch and its stream in float32: 258.50 MiB, as llama.cpp logs for Llama 3 8B (vocabulary 128256, hidden 4096, ubatch 512)"
_NO_CROSS = (
    "llama.cpp keeps the encoder's output on the host and computes cross-attention's keys and values anew (src/llama-graph.cpp, "
    "llama_cross); what its graph holds of them is not known"
)


def cache(facts: ModelFacts, setting: Setting) -> Parts:
    """Cells for keys and values, and recurrent states.

    Raises:
        UsageError: the cache type's blocks do not divide the model's rows.
    """
    if facts.family == "encoder-decoder":
        return Parts(omitted=(Omission(id="kv_cache", reason=_NO_CROSS),))
    try:
        if is_compressed(facts):
            return _compressed(facts, setting)
        parts = layer_parts(facts, _SECTION)
        _check_indexers(facts, parts)
        cells, said = _cells(facts, setting, parts)
    except NotModelledError as error:
        return Parts(omitted=(Omission(id="kv_cache", reason=str(error)),))
    state = _states(facts, setting, parts)
    return Parts(components=tuple(part for part in (cells, state) if part is not None), assumptions=said)


def _compressed(facts: ModelFacts, setting: Setting) -> Parts:
    states = compressor_states(facts, _state_inputs(setting))
    return Parts(components=(compressed_cells(facts, _inputs(setting), _CELLS, _WINDOW_CELLS), states))


def _check_indexers(facts: ModelFacts, parts: list[LayerPart]) -> None:
    known_types = table(TABLE)[_SECTION]["indexers"]
    if any(part.kind == "indexer" for part in parts) and facts.model_type not in known_types:
        raise NotModelledError(
            f"whether llama.cpp keeps the index keys of {facts.model_type} is not known; it does for {' and '.join(known_types)}"
        )


def loaded(facts: ModelFacts, weights: Component) -> Component:
    """The same bytes as a GGUF of that type; an embedding that is no head too stays in the host's memory."""
    embeddings = [group for group in facts.tensor_groups if group.role == "embedding" and group.extra is None]
    is_shared = facts.tied_embeddings.value is not False or facts.parameters is None or not facts.parameters.loaded
    if is_shared or facts.parameters is None:
        on_host = 0
    elif facts.format == "gguf":
        on_host = sum(group.stored_bytes for group in embeddings)
    else:
        on_host = weights.bytes * sum(group.parameters or 0 for group in embeddings) // facts.parameters.loaded
    return replace(
        weights,
        exactness=weights.exactness if facts.format == "gguf" and not on_host else "formula",
        low_bytes=weights.bytes - on_host,
        sources=(
            *weights.sources,
            "band: llama.cpp keeps the input embedding in the host's memory (src/llama-model.cpp, load_tensors)",
        ),
    )


def beside(facts: ModelFacts, setting: Setting) -> Parts:
    """The compute buffer of one ubatch, and the CUDA context."""
    row = table(TABLE)[_SECTION]
    inputs: dict[str, Input] = {"ubatch_tokens": given(row["ubatch_tokens"], row["ubatch_tokens_source"])}
    omitted: tuple[Omission, ...] = ()
    found: tuple[Component, ...] = ()
    for name, fact in (("vocab_size", facts.vocab_size), ("hidden_size", facts.hidden_size)):
        value = known(fact)
        if value is None:
            omitted = (Omission(id="activations", reason=f"{name} is not known: {fact.where}"),)
        else:
            inputs[name] = value
    if not omitted:
        found = (
            component(
                "activations",
                "Activation",
                _COMPUTE,
                inputs,
                exactness="formula",
                source=_COMPUTE_SOURCE,
                band_percent=(0, 100),
            ),
        )
    return Parts(components=(*found, banded("cuda_context", "Context", TABLE, "llama_cpp_context")), omitted=omitted)


def _cells(facts: ModelFacts, setting: Setting, parts: list[LayerPart]) -> tuple[Component | None, tuple[str, ...]]:
    sums: Counter[int | None] = Counter()
    said: tuple[str, ...] = ()
    # What a GGUF file's plan has of windows comes from llama.cpp itself.
    knows_windows = facts.format == "gguf" or facts.model_type in table(TABLE)[_SECTION]["windows"]
    keeps_windows = setting.cache != "swa_full" and knows_windows
    for part in parts:
        if part.kind == "state":
            continue
        elements = part.elements
        if part.kind == "latent":
            elements, said = _latent(facts, setting, part)
        _check_blocks(setting, part)
        sums[part.window_tokens if keeps_windows else None] += elements
    if not sums:
        return None, ()
    inputs = _inputs(setting)
    terms = []
    for window, elements in sums.items():
        name = "full_elements" if window is None else f"window_{window}_elements"
        inputs[name] = given(elements, "elements a cell over the layers")
        cells = _CELLS if window is None else _WINDOW_CELLS.format(window=window)
        terms.append(f"{cells} * ({name} // kv_block_elements * kv_block_bytes)")
    formula = f"batch_size * ({' + '.join(terms)})"
    made = component("kv_cache", "KVCache", formula, inputs, exactness="exact", source=_KV_SOURCE)
    return made, (*said, *_windows_said(parts, keeps_windows=keeps_windows))


def _windows_said(parts: list[LayerPart], *, keeps_windows: bool) -> tuple[str, ...]:
    if keeps_windows or not any(part.kind == "window" for part in parts):
        return ()
    return ("llama.cpp keeps every token of every layer here, whatever the model's window",)


def _latent(facts: ModelFacts, setting: Setting, part: LayerPart) -> tuple[int, tuple[str, ...]]:
    """Elements a token of one layer with latent attention: the latent, or all heads' keys and values."""
    if setting.cache != "expanded":
        return part.elements, (
            "the GGUF holds the latent (converted since April 2025); --cache expanded is for older ones, Ollama's among them",
        )
    heads = facts.attention_heads.value
    rows = {
        (group.logical_shape or group.shape)[:1]
        for group in facts.tensor_groups
        if group.pattern.endswith("kv_b_proj.weight") and group.extra is None
    }
    if heads is None or len(rows) != 1 or () in rows:
        raise NotModelledError("the widths of all heads' keys and values are not known")
    rotary = sum(tensor.elements_per_token for tensor in part.tensors if tensor.name == "rotary_key")
    (kept,) = rows.pop()
    return kept + heads * rotary, ("all heads' keys and values are kept, as GGUFs from before April 2025 have it",)


def _check_blocks(setting: Setting, part: LayerPart) -> None:
    for tensor in part.tensors:
        if tensor.elements_per_token % setting.kv.elements:
            raise UsageError(
                f"{setting.kv.name} packs {setting.kv.elements} elements, which do not divide rows of {tensor.elements_per_token}",
                hint="--kv-dtype f16",
            )


def _states(facts: ModelFacts, setting: Setting, parts: list[LayerPart]) -> Component | None:
    row = table(TABLE)[_SECTION]
    tensors = [tensor for part in parts if part.kind == "state" for tensor in part.tensors]
    elements = sum(
        convolution_elements(facts, tensor) if is_convolution(tensor) else tensor.fixed_elements for tensor in tensors
    )
    is_known = all(kernel_width(facts, tensor) for tensor in tensors if is_convolution(tensor))
    if not elements:
        return None
    inputs = _state_inputs(setting)
    inputs["state_elements"] = given(elements, "over all layers, convolutions without their oldest column")
    formula = "batch_size * (1 + draft_tokens) * state_elements * state_bits // 8"
    return component(
        "recurrent_state",
        "KVCache",
        formula,
        inputs,
        exactness="exact" if is_known else "bound",
        source=row["state_source"],
    )


def _state_inputs(setting: Setting) -> dict[str, Input]:
    row = table(TABLE)[_SECTION]
    return {
        "batch_size": setting.batch_size,
        "draft_tokens": setting.draft_tokens,
        "state_bits": given(bits_of()[row["state_dtype"]], row["state_source"]),
    }


def _inputs(setting: Setting) -> dict[str, Input]:
    row = table(TABLE)[_SECTION]
    return {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "new_tokens": setting.new_tokens,
        "pad_tokens": given(row["pad_tokens"], row["pad_tokens_source"]),
        "ubatch_tokens": given(row["ubatch_tokens"], row["ubatch_tokens_source"]),
    } | setting.kv.block
