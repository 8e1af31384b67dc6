"""The checkpoint's own scheme for the KV cache: read where configs name it, unknown where they do not."""

from __future__ import annotations

from typing import Any

import pytest

from hubaudit.facts.kv_scheme import kv_scheme

FP8 = {"dynamic": False, "num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("configs", "value", "where"),
    [
        (
            {"config.json": {"quantization_config": {"quant_method": "modelopt", "kv_cache_scheme": FP8}}},
            "fp8_e4m3",
            "config.json#quantization_config.kv_cache_scheme",
        ),
        (
            {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}},
            "fp8_e4m3",
            "hf_quant_config.json#quantization.kv_cache_quant_algo",
        ),
        (
            {"hf_quant_config.json": {"quantization": {"kv_cache_quant_algo": "NVFP4"}}},
            "nvfp4",
            "hf_quant_config.json#quantization.kv_cache_quant_algo",
        ),
    ],
)
def test_schemes_that_checkpoints_name(configs: Any, value: str, where: str) -> None:
    """ModelOpt's and compressed-tensors' spellings, in the files that NVIDIA's checkpoints have them in."""
    found = kv_scheme(configs)
    assert (found.value, found.where) == (value, where)


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"config.json": {}},
        {"config.json": {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}}},
        {"config.json": {"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": None}}},
        {"config.json": {"quantization_config": ["no", "section"]}},
        {"hf_quant_config.json": {"quantization": {"kv_cache_quant_algo": None}}},
        {"hf_quant_config.json": {"quantization": {"kv_cache_quant_algo": "INT3"}}},
        {"config.json": {"quantization_config": {"kv_cache_scheme": {"num_bits": 4, "type": "int"}}}},
    ],
)
def test_weights_say_nothing_of_the_cache(configs: Any) -> None:
    """FP8 weights, an explicit null, a scheme that nobody knows, or nothing at all: not known, with the reason."""
    found = kv_scheme(configs)
    assert found.value is None
    assert found.where
