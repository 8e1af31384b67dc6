"""What an engine that takes its memory at once makes of a device: how much it may use, and what its cache then holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.kv_dtype import TABLE
from hubaudit.estimate.runtimes.layer_parts import NotModelledError
from hubaudit.estimate.runtimes.vllm import kv_pool_bytes, vllm_capacity
from hubaudit.estimate.setting import settle
from hubaudit.estimate.split.devices import fullest_facts

if TYPE_CHECKING:
    from hubaudit.types import Estimate, Hardware, ModelFacts, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The cache of a server: tokens as it logs them, and sequences of ``sequence_tokens`` that run at once."""

    cache_tokens: int
    sequences: int
    sequence_tokens: int


def budget_bytes(runtime: str, usable_bytes: int) -> int:
    """What the engine may take of a device: all of it, or as much as vLLM's default ``gpu_memory_utilization`` allows."""
    return usable_bytes * int(table(TABLE)["vllm"]["memory_percent"]) // 100 if runtime == "vllm" else usable_bytes


def served(facts: ModelFacts, workload: Workload, estimate: Estimate, hardware: Hardware) -> Served | None:
    """What vLLM's cache holds with the model's full context, on one device or on as many as share every matrix; ``None`` for other engines and splits."""
    if workload.runtime != "vllm" or workload.mode != "infer" or estimate.omitted:
        return None
    if hardware.count > 1 or workload.pp > 1 or workload.ep > 1:
        return None  # stages and groups have pools of their own, of which the smallest counts
    if workload.tp > 1:
        facts, workload = fullest_facts(facts, workload), replace(workload, tp=1)
    setting = settle(facts, workload)
    length = facts.max_positions.value or setting.prompt_tokens.value + setting.new_tokens.value
    pool_bytes = kv_pool_bytes(facts, setting, estimate, hardware.usable_bytes, hardware.name)
    try:
        found = vllm_capacity(facts, setting, pool_bytes, sequence_tokens=length)
    except NotModelledError:
        return None
    if found is None:
        return None
    return Served(cache_tokens=found.tokens, sequences=found.sequences, sequence_tokens=length)
