"""vLLM: blocks of its pool for a workload, how many tokens and sequences a pool of given size holds, and what lies beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.component import Input, Parts, component, given, known
from hubaudit.estimate.expression import evaluate
from hubaudit.estimate.kv_dtype import TABLE
from hubaudit.estimate.overhead import banded
from hubaudit.estimate.runtimes.layer_parts import NotModelledError
from hubaudit.estimate.runtimes.vllm_pages import page_specs, without_windows
from hubaudit.estimate.runtimes.vllm_pool import pool_inputs, pool_of, sequence_formula
from hubaudit.types import Omission

if TYPE_CHECKING:
    from hubaudit.estimate.runtimes.vllm_pool import Pool
    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, Estimate, ModelFacts

#: A decoder behind an encoder sees the generated tokens only.
_TOKENS = {"encoder-decoder": "new_tokens"}
_ALL_TOKENS = "(prompt_tokens + new_tokens)"
_SOURCE = (
    "vLLM vllm/v1/core/kv_cache_utils.py and kv_cache_interface.py at 001cabc1be16: whole blocks for each sequence"
)
_UNIFORM = "batch_size * ceil_div(prompt_tokens + new_tokens, block_tokens) * block_tokens * token_bytes"
_HYBRID_PERCENT = (2, 2)
_ACTIVATIONS = (
    "batched_tokens * (3 * intermediate_size + 4 * hidden_size) * dtype_bits // 8 + 8 * sequences * vocab_size"
)
_ACTIVATIONS_SOURCE = (
    "the profiling run: a gated MLP over all batched tokens, and float32 logits of all sequences, twice. Logged peaks: Llama-3.1-8B on an H100 "
    "1.97 GiB (formula 1.88), Qwen2.5-0.5B at 32768 tokens 1.44 (1.40), Qwen2-VL-7B 1.16 (1.38), Llama-3.3-70B TP 2 4.84 (2.1), gpt-oss-20b 7.38 (1.8)"
)
_DENSE_PERCENT = (25, 150)
_EXPERTS_PERCENT = (25, 350)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmCapacity:
    """What a pool of cache holds: blocks, and sequences of ``sequence_tokens`` as vLLM counts them."""

    blocks: int
    block_bytes: int
    blocks_per_sequence: int
    sequence_tokens: int
    tokens_by_blocks: int

    @property
    def sequences(self) -> int:
        """Sequences of full length that run at once."""
        return self.blocks // self.blocks_per_sequence

    @property
    def concurrency(self) -> float:
        """The "Maximum concurrency" that vLLM logs."""
        return self.blocks / self.blocks_per_sequence

    @property
    def tokens(self) -> int:
        """The "GPU KV cache size" that vLLM logs since 0.21; before it logged ``tokens_by_blocks``, which differs for hybrid models."""
        return self.blocks * self.sequence_tokens // self.blocks_per_sequence


def cache(facts: ModelFacts, setting: Setting) -> Parts:
    """The blocks that the workload takes; the server itself takes all memory that it may."""
    try:
        pool = _pool(facts, setting)
    except NotModelledError as error:
        return Parts(omitted=(Omission(id="kv_cache", reason=str(error)),))
    if pool is None:
        return Parts()
    percent = table(TABLE)["vllm"]["memory_percent"]
    said = (
        f"vLLM gives its cache all that is left of {percent} % of the device (--gpu-memory-utilization); shown is what this workload needs of it",
    )
    made = (
        _uniform(pool, setting)
        if pool.is_uniform
        else _in_groups(pool, setting, _TOKENS.get(facts.family, _ALL_TOKENS))
    )
    return Parts(components=(made,), assumptions=said)


def loaded(facts: ModelFacts, weights: Component) -> Component:
    """The weights, and up to what vLLM's logs say beyond them."""
    row = table(TABLE)["vllm_weights_extra"]
    return replace(
        weights,
        exactness="formula",
        high_bytes=weights.bytes + int(row["high_bytes"]),
        sources=(*weights.sources, f"band: {row['source']}"),
    )


def beside(facts: ModelFacts, setting: Setting) -> Parts:
    """Activations of the profiling run, CUDA graphs, and memory outside of torch: measured bands, whatever the workload."""
    return Parts(
        components=(
            activations(facts, setting),
            banded("workspace", "Workspace", TABLE, "vllm_cuda_graphs"),
            banded("cuda_context", "Context", TABLE, "vllm_outside_torch"),
        )
    )


def activations(facts: ModelFacts, setting: Setting, *, is_large: bool = False) -> Component:
    """The peak of the profiling run with the API server's defaults; ``is_large`` for devices of 70 GiB and more."""
    row = table(TABLE)["vllm"]
    kind, where = ("large_", "large_source") if is_large else ("", "batched_tokens_source")
    inputs = {
        "batched_tokens": given(row[f"{kind}batched_tokens"], row[where]),
        "sequences": given(row[f"{kind}sequences"], row[where]),
        "dtype_bits": setting.dtype_bits,
    }
    for name in ("hidden_size", "intermediate_size", "vocab_size"):
        value = known(getattr(facts, name))
        if value is None:
            return banded("activations", "Activation", TABLE, "vllm_activations")
        inputs[name] = value
    return component(
        "activations",
        "Activation",
        _ACTIVATIONS,
        inputs,
        exactness="fitted",
        source=_ACTIVATIONS_SOURCE,
        band_percent=_DENSE_PERCENT if facts.moe is None else _EXPERTS_PERCENT,
    )


def vllm_capacity(
    facts: ModelFacts,
    setting: Setting,
    available_kv_bytes: int,
    *,
    sequence_tokens: int,
    tensor_parallel: int = 1,
    batched_tokens: int | None = None,
) -> VllmCapacity | None:
    """What fits into the memory that vLLM reports as available for the KV cache, on each of ``tensor_parallel`` devices.

    Args:
        facts: the model.
        setting: the workload, settled for ``runtime="vllm"``: dtypes, cache and drafted tokens are taken from it.
        available_kv_bytes: "Available KV cache memory" of one device.
        sequence_tokens: ``--max-model-len``.
        tensor_parallel: devices that the heads are split over.
        batched_tokens: ``--max-num-batched-tokens``; the API server's default where it is ``None``.

    Returns:
        ``None`` for a model that keeps nothing between tokens.

    Raises:
        NotModelledError: what vLLM keeps for this model is not known.
    """
    pool = _pool(facts, setting, tensor_parallel)
    if pool is None:
        return None
    inputs = pool_inputs(pool) | {
        "batched_tokens": batched_tokens or table(TABLE)["vllm"]["batched_tokens"],
        "draft_tokens": setting.draft_tokens.value,
        "encoder_tokens": setting.encoder_tokens.value,
        "sequence_tokens": sequence_tokens,
    }
    blocks = available_kv_bytes // pool.block_bytes
    tables = sum(count for _, count in pool.groups)
    least = min((spec.block_tokens for spec, _ in pool.groups if spec.block_tokens), default=sequence_tokens)
    return VllmCapacity(
        blocks=blocks,
        block_bytes=pool.block_bytes,
        blocks_per_sequence=evaluate(sequence_formula(pool, "sequence_tokens"), inputs),
        sequence_tokens=sequence_tokens,
        tokens_by_blocks=blocks // tables * least,
    )


def kv_pool_bytes(facts: ModelFacts, setting: Setting, estimate: Estimate, usable_bytes: int, device: str = "") -> int:
    """What vLLM's defaults leave for its cache on a device: its share of ``usable_bytes`` (``gpu_memory_utilization``), less all of ``estimate`` that is no cache.

    Large devices take more tokens and sequences at once, hence more activations; ``device`` is the name by which an A100 is none of them.
    """
    row = table(TABLE)["vllm"]
    is_large = usable_bytes >= row["large_bytes"] and "a100" not in device.lower()
    peak = activations(facts, setting, is_large=is_large)
    others = sum(part.bytes for part in estimate.components if part.category not in ("KVCache", "Activation"))
    return max(usable_bytes * int(row["memory_percent"]) // 100 - others - peak.bytes, 0)


def _pool(facts: ModelFacts, setting: Setting, tensor_parallel: int = 1) -> Pool | None:
    specs = page_specs(facts, setting, tensor_parallel)
    return pool_of(without_windows(specs) if setting.cache == "paged_full" else specs)


def _uniform(pool: Pool, setting: Setting) -> Component:
    block_tokens = pool.groups[0][0].block_tokens
    inputs = _inputs(setting) | {
        "block_tokens": given(block_tokens, f"table:{TABLE}#vllm"),
        "token_bytes": given(pool.block_bytes // block_tokens, "one token over all layers"),
    }
    return component("kv_cache", "KVCache", _UNIFORM, inputs, exactness="exact", source=_SOURCE)


def _in_groups(pool: Pool, setting: Setting, tokens: str) -> Component:
    inputs = _inputs(setting) | {
        name: given(value, "rule:how vLLM groups the layers") for name, value in pool_inputs(pool).items()
    }
    inputs["block_bytes"] = given(pool.block_bytes, f"pages of {pool.layers_in_group} layers, one a group")
    formula = f"batch_size * ({sequence_formula(pool, tokens)}) * block_bytes"
    return component(
        "kv_cache", "KVCache", formula, inputs, exactness="formula", source=_SOURCE, band_percent=_HYBRID_PERCENT
    )


def _inputs(setting: Setting) -> dict[str, Input]:
    row = table(TABLE)["vllm"]
    return {
        "batch_size": setting.batch_size,
        "prompt_tokens": setting.prompt_tokens,
        "new_tokens": setting.new_tokens,
        "encoder_tokens": setting.encoder_tokens,
        "draft_tokens": setting.draft_tokens,
        "batched_tokens": given(row["batched_tokens"], row["batched_tokens_source"]),
    }
