"""The scheme in which a checkpoint was calibrated to keep keys and values, where its quantization settings name one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hubaudit.types import NOTHING, Json, Sourced

if TYPE_CHECKING:
    from hubaudit.types import Config

_PLACES = (
    ("config.json", "quantization_config", "kv_cache_scheme"),
    ("config.json", "quantization_config", "kv_cache_quant_algo"),
    ("config.json", "compression_config", "kv_cache_scheme"),
    ("hf_quant_config.json", "quantization", "kv_cache_quant_algo"),
)
#: ModelOpt's names for it, as vLLM reads them (vllm/utils/torch_utils.py, MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP).
_ALGORITHMS = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "nvfp4": "nvfp4"}
_FP8_BITS = 8


def kv_scheme(configs: Mapping[str, Config]) -> Sourced[str]:
    """``fp8_e4m3`` or ``nvfp4``; ``None`` where no config names a scheme that is known. Weights in FP8 alone say nothing of the cache."""
    for file, section, key in _PLACES:
        part = configs.get(file, NOTHING).get(section)
        said = part.get(key) if isinstance(part, Mapping) else None
        if said is not None:
            where = f"{file}#{section}.{key}"
            found = _named(said)
            return Sourced(value=found, where=where if found else f"{where} is not understood")
    return Sourced(value=None, where="no config names a scheme for the KV cache")


def _named(said: Json) -> str | None:
    if isinstance(said, str):
        return _ALGORITHMS.get(said.lower())
    if isinstance(said, Mapping) and said.get("num_bits") == _FP8_BITS and said.get("type") == "float":
        return "fp8_e4m3"
    return None
