"""llama.cpp's caches for DeepSeek-V4: a window of every layer, compressed entries and index keys of some, and the compressors' rings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.component import Input, component, given
from hubaudit.estimate.runtimes.layer_parts import NotModelledError

if TYPE_CHECKING:
    from hubaudit.types import CacheTensor, Component, ModelFacts

_SOURCE = "llama.cpp src/llama-kv-cache-dsv4.cpp at 035aa95b0016: keys only, compressed cells padded to 256, one stream a sequence"
_STATE_SOURCE = (
    "llama.cpp src/llama-kv-cache-dsv4.cpp at 035aa95b0016, llama_dsv4_comp_state: values and scores in float32"
)
#: Tokens an entry, as llama.cpp fixes them, and how many series its compressor keeps: ratio 4 overlaps, so it keeps two of both.
_SERIES = {4: 2, 128: 1}


def is_compressed(facts: ModelFacts) -> bool:
    """Whether layers keep one entry for several tokens."""
    return any("compressed" in layer.kind for layer in facts.layer_plan or ())


def compressed_cells(facts: ModelFacts, inputs: dict[str, Input], cells: str, window_cells: str) -> Component:
    """Keys of the window in every layer, compressed entries where a layer has them, index keys beside them.

    Args:
        facts: the model.
        inputs: the workload's numbers and the engine's.
        cells: the formula of the cells for all tokens.
        window_cells: that of a window's, with ``{window}`` in it.

    Raises:
        NotModelledError: the model compresses otherwise than llama.cpp can.
    """
    keys = _tensors(facts, "keys")
    windows = {tensor.window_tokens for tensor in keys}
    window = windows.pop() if len(windows) == 1 else None
    if window is None:
        raise NotModelledError("llama.cpp keeps one window for all layers of such a model, and this one has several")
    terms = [
        (window_cells.format(window=window + 1), "window_elements", sum(tensor.elements_per_token for tensor in keys))
    ]
    for name in ("compressed_kv", "indexer_compressed_kv"):
        for rate in sorted(_SERIES):
            elements = sum(
                tensor.elements_per_token for tensor in _tensors(facts, name) if tensor.tokens_per_entry == rate
            )
            entries = f"ceil_div(ceil_div({cells}, {rate}), pad_tokens) * pad_tokens"
            terms.append((entries, f"{name}_{rate}_elements", elements))
    used = [term for term in terms if term[2]]
    inputs = inputs | {name: given(elements, "elements a cell over the layers") for _, name, elements in used}
    rows = (f"{counted} * ({name} // kv_block_elements * kv_block_bytes)" for counted, name, _ in used)
    return component(
        "kv_cache", "KVCache", f"batch_size * ({' + '.join(rows)})", inputs, exactness="exact", source=_SOURCE
    )


def compressor_states(facts: ModelFacts, inputs: dict[str, Input]) -> Component:
    """The rings in which the tokens wait that no entry has yet: values and scores of one window, of two where windows overlap.

    Raises:
        NotModelledError: the model compresses otherwise than llama.cpp can.
    """
    elements = 0
    for tensor in (*_tensors(facts, "compressed_kv"), *_tensors(facts, "indexer_compressed_kv")):
        series = _SERIES.get(tensor.tokens_per_entry)
        if series is None:
            raise NotModelledError(
                f"llama.cpp compresses 4 or 128 tokens to an entry, and this model {tensor.tokens_per_entry}"
            )
        elements += 2 * series * tensor.tokens_per_entry * series * tensor.elements_per_token
    return component(
        "recurrent_state",
        "KVCache",
        "batch_size * (1 + draft_tokens) * state_elements * state_bits // 8",
        inputs | {"state_elements": given(elements, "values and scores over all compressors")},
        exactness="exact",
        source=_STATE_SOURCE,
    )


def _tensors(facts: ModelFacts, name: str) -> list[CacheTensor]:
    return [tensor for layer in facts.layer_plan or () for tensor in layer.tensors if tensor.name == name]
