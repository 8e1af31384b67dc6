"""Configs of libraries beside transformers: what timm's says of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.types import Sourced

if TYPE_CHECKING:
    from hubaudit.types import Config, ModelFacts, RepoSnapshot

_MAIN = "config.json"


def as_its_library_says(facts: ModelFacts, snapshot: RepoSnapshot) -> ModelFacts:
    """``facts`` with what a config of another library adds; as they are where there is none.

    timm 1.0 (models/_hub.py, `save_config_for_hf`): ``architecture``, ``num_classes``, ``num_features``, ``pretrained_cfg``.
    """
    config = snapshot.configs.get(_MAIN)
    if config is None:
        return facts
    if _is_timm(config):
        features = _count(config, "num_features")
        return replace(
            facts,
            library="timm",
            architecture=str(config["architecture"]),
            family="other",
            hidden_size=features if facts.hidden_size.value is None and features.value else facts.hidden_size,
            num_classes=_count(config, "num_classes"),
            dtype=Sourced(value="F32", where="default:torch.get_default_dtype(), into which timm copies the weights"),
            layer_plan=(),
            layer_plan_reason=None,
        )
    return facts


def _is_timm(config: Config) -> bool:
    is_plain = "architectures" not in config and "model_type" not in config
    return (
        is_plain
        and isinstance(config.get("architecture"), str)
        and ("pretrained_cfg" in config or "num_features" in config)
    )


def _count(config: Config, key: str) -> Sourced[int]:
    value = config.get(key)
    if type(value) is not int or value < 0:
        return Sourced(value=None, where=f"{_MAIN} does not say {key}")
    return Sourced(value=value, where=f"{_MAIN}#{key}")
