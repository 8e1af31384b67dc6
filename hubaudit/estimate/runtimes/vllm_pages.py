"""What each layer asks of vLLM's pool: pages of so many tokens and bytes, for keys and values, latents, index keys and states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of
from hubaudit.estimate.kv_dtype import TABLE
from hubaudit.estimate.runtimes.layer_parts import (
    LayerPart,
    NotModelledError,
    convolution_elements,
    is_convolution,
    layer_parts,
)

if TYPE_CHECKING:
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import CacheTensor, ModelFacts

_SECTION = "vllm"
_BYTE = 8
#: Kinds that are one to the allocator: blocks for every token, whatever is in them.
_FULL = frozenset({"full", "latent", "indexer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """One layer's pages. ``kind`` is full, sliding, chunked, cross or state; a state's page holds it whole, so it has no tokens."""

    kind: str
    block_tokens: int
    page_bytes: int
    window_tokens: int | None = None

    @property
    def label(self) -> str:
        """The start of the names of the formula's inputs."""
        return self.kind if self.window_tokens is None else f"{self.kind}_{self.window_tokens}"


def page_specs(facts: ModelFacts, setting: Setting, tensor_parallel: int = 1) -> list[PageSpec]:
    """The pages of every layer on one of ``tensor_parallel`` devices, before the pool makes them equal.

    Where there are states, attention's blocks grow until a page holds one, and the states' pages are filled up to that
    (HybridAttentionMambaModelConfig, vllm/model_executor/models/config.py at 0144dd5b0d2d).

    Raises:
        NotModelledError: a layer keeps something that vLLM's code was not read for, or cannot be split so.
    """
    row = table(TABLE)[_SECTION]
    parts = layer_parts(facts, _SECTION)
    indexed = {part.layer for part in parts if part.kind == "indexer"}
    attention = [
        (part, _token_bytes(facts, setting, part, tensor_parallel, is_indexed=part.layer in indexed))
        for part in parts
        if part.kind != "state"
    ]
    state_bytes = [_state_bytes(facts, setting, part, tensor_parallel) for part in parts if part.kind == "state"]
    block_tokens = row["mla_block_tokens" if any(part.kind == "latent" for part in parts) else "block_tokens"]
    if state_bytes and attention:
        align = row["state_alignment_tokens"]
        widest = max(token_bytes for _, token_bytes in attention)
        block_tokens = max(block_tokens, -(-max(state_bytes) // (align * widest)) * align)
        state_bytes = [block_tokens * widest] * len(state_bytes)
    specs = [_spec(part, block_tokens, token_bytes) for part, token_bytes in attention]
    return specs + [PageSpec(kind="state", block_tokens=0, page_bytes=size) for size in state_bytes]


def without_windows(specs: list[PageSpec]) -> list[PageSpec]:
    """The same layers with the hybrid manager switched off: windows and chunks get blocks for every token.

    Raises:
        NotModelledError: there are states too, with which vLLM does not start so.
    """
    if any(spec.kind == "state" for spec in specs):
        raise NotModelledError("vLLM does not serve models with states without its hybrid cache manager")
    return [
        replace(spec, kind="full", window_tokens=None) if spec.kind in ("sliding", "chunked") else spec
        for spec in specs
    ]


def _spec(part: LayerPart, block_tokens: int, token_bytes: int) -> PageSpec:
    return PageSpec(
        kind="full" if part.kind in _FULL else part.kind,
        block_tokens=block_tokens,
        page_bytes=block_tokens * token_bytes,
        window_tokens=part.window_tokens if part.kind in ("sliding", "chunked") else None,
    )


def _token_bytes(
    facts: ModelFacts, setting: Setting, part: LayerPart, tensor_parallel: int, *, is_indexed: bool
) -> int:
    row = table(TABLE)[_SECTION]
    if part.kind == "indexer":
        return _indexer_bytes(part.elements, row)
    if part.kind == "latent":
        if is_indexed and setting.kv.name.startswith("fp8"):
            return int(row["sparse_fp8_token_bytes"])
        return part.elements * setting.kv.bytes // setting.kv.elements
    elements = _share_of_heads(facts, part.elements, tensor_parallel)
    return elements * setting.kv.bytes // setting.kv.elements


def _indexer_bytes(elements: int, row: dict[str, Any]) -> int:
    return elements + elements // int(row["indexer_scale_elements"]) * int(row["indexer_scale_bytes"])


def _share_of_heads(facts: ModelFacts, elements: int, tensor_parallel: int) -> int:
    """Heads are split over the devices, and repeated where there are fewer of them."""
    if tensor_parallel == 1:
        return elements
    heads = facts.kv_heads.value
    if heads is None or elements % heads:
        raise NotModelledError(
            f"how vLLM splits {elements} elements a token over {tensor_parallel} devices is not known"
        )
    return elements // heads * max(1, heads // tensor_parallel)


def _state_bytes(facts: ModelFacts, setting: Setting, part: LayerPart, tensor_parallel: int) -> int:
    return sum(_one_state(facts, setting, tensor) for tensor in part.tensors) // tensor_parallel


def _one_state(facts: ModelFacts, setting: Setting, tensor: CacheTensor) -> int:
    """Convolutions in the model's dtype, recurrent states in it too unless the model's own setting says otherwise."""
    if is_convolution(tensor):
        elements = convolution_elements(facts, tensor, setting.draft_tokens.value)
        return elements * setting.dtype_bits.value // _BYTE
    named = table(TABLE)[_SECTION]["state_dtype"].get(facts.model_type, setting.dtype)
    return tensor.fixed_elements * bits_of()[named] // _BYTE
