"""Trainable parameters against PEFT's own, on the meta device."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fixture_models import facts_of, snapshot_of

from hubaudit.errors import UsageError
from hubaudit.estimate.training.lora import saved_whole, trained_tensors
from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.tensors import elements_of
from hubaudit.types import Workload

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

_MODELS = (
    "qwen2-0.5b-instruct", "llama-3.1-8b", "phi-3-mini-4k-instruct", "gpt2", "gemma-2-2b-it", "falcon-7b-instruct", "mixtral-8x7b-v0.1",
    "qwen3-30b-a3b", "t5-small", "deepseek-v2-lite", "lfm2-1.2b",
)  # fmt: skip
_ASKED: tuple[dict[str, Any], ...] = (
    {"lora_targets": "all-linear"},
    {"lora_targets": None},
    {"lora_targets": "all-linear", "lora_variant": "dora"},
    {"lora_targets": "all-linear", "lora_variant": "rslora"},
)


def _peft_count(name: str, asked: dict[str, Any]) -> int:
    import peft
    import torch
    import transformers

    config = json.loads(json.dumps(dict(snapshot_of(name).configs["config.json"])))
    architecture = config["architectures"][0]
    dropped = ("torch_dtype", "dtype", "auto_map", "architectures")
    made = transformers.AutoConfig.for_model(**{key: value for key, value in config.items() if key not in dropped})
    with torch.device("meta"):
        model = getattr(transformers, architecture)._from_config(made, dtype=torch.bfloat16)
        lora = peft.LoraConfig(
            r=16,
            target_modules=asked["lora_targets"],
            use_dora=asked.get("lora_variant") == "dora",
            use_rslora=asked.get("lora_variant") == "rslora",
        )
        tuned = peft.get_peft_model(model, lora, low_cpu_mem_usage=True)
    return sum(one.numel() for one in tuned.parameters() if one.requires_grad)


@pytest.mark.parametrize(
    ("name", "asked"),
    # PEFT 0.21.2 finds no default targets for mixtral under transformers 5, though its table has them
    [(name, asked) for name in _MODELS for asked in _ASKED if asked["lora_targets"] or name != "mixtral-8x7b-v0.1"],
    ids=str,
)
def test_parameters_are_those_of_peft(name: str, asked: dict[str, Any]) -> None:
    """All linear layers, PEFT's own choice for the type, DoRA and rsLoRA: the same number of trainable parameters."""
    pytest.importorskip("peft")
    facts = facts_of(name)
    setting = settle_training(facts, Workload(mode="train", lora=16, **asked))
    assert setting.adapters is not None
    if asked.get("lora_variant") == "rslora" and name != _MODELS[0]:
        pytest.skip("rsLoRA differs from LoRA in a factor alone")
    try:
        ours = elements_of(trained_tensors(facts, setting.adapters) + saved_whole(facts, setting.adapters))
    except UsageError:
        with pytest.raises(ValueError, match=r"target_modules|use_dora"):
            _peft_count(name, asked)
        return
    assert ours == _peft_count(name, asked)
