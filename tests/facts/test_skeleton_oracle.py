"""Every described model type against transformers' own modules on the meta device: names, shapes, kinds and stored buffers."""

from __future__ import annotations

import json
import random
import re
import warnings
from collections import Counter
from typing import Any

import pytest

from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.skeleton import Skeleton, describe, described_classes, described_model_types

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.oracle

DRAWS = 3
ATTEMPTS = 12
KIND_OF_MODULE = {
    "linear": torch.nn.Linear,
    "conv1d": transformers.pytorch_utils.Conv1D,
    "embedding": torch.nn.Embedding,
}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """Configuration classes warn about odd drawn values; what they build is compared all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.utils.logging.set_verbosity_error()
        yield


# --- drawing configurations ------------------------------------------------------------------------------------------------------


class Draw:
    """Random values for the keys of a configuration, by what their names say, small and consistent with each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 -- draws, not secrets
        self.heads = self.random.choice((4, 8))
        self.kv_heads = self.random.choice((1, 2, 4))
        self.head_dim = self.random.choice((8, 16, 24, 32))
        self.hidden = self.heads * self.head_dim
        self.layers = self.random.choice((2, 3, 5))
        self.experts = self.random.choice((4, 8))

    def overrides(self, defaults: dict[str, Any], read: set[str]) -> dict[str, Any]:
        """New values for the keys of ``defaults`` that the tables read; nested configurations are drawn too."""
        found = {}
        for key, value in defaults.items():
            if isinstance(value, dict) and key.endswith("_config"):
                found[key] = self.overrides(value, read) | {
                    name: value[name] for name in ("model_type",) if value.get(name)
                }
            elif key in read or self._linked(key):
                drawn = self.value(key, value)
                if drawn is not None:
                    found[key] = drawn
        return found

    def _linked(self, key: str) -> bool:
        return any(re.search(pattern, key) for pattern, _ in self._rules())

    def _rules(self) -> list[tuple[str, Any]]:
        return [
            (r"(^|_)(num_)?(key_value_heads|kv_heads)$", self.kv_heads),
            (r"^(num_attention_heads|n_head|n_heads|num_heads|\w+_attention_heads)$", self.heads),
            (r"^(hidden_size|n_embd|d_model|dim|embed_dim)$", self.hidden),
            (r"^(num_hidden_layers|n_layer|n_layers|num_layers|\w+_layers|depth)$", self.layers),
            (r"^(head_dim|d_kv)$", self.head_dim),
        ]

    def value(self, key: str, value: Any) -> Any:
        """A value for ``key``, ``None`` to leave it alone."""
        if isinstance(value, bool):
            return self.random.random() < 0.5
        for pattern, drawn in self._rules():
            if re.search(pattern, key):
                return drawn
        if not isinstance(value, int) and not (value is None and re.search(r"n_inner|intermediate", key)):
            return None
        if re.search(r"vocab_size", key):
            return self.random.randrange(300, 400)
        if re.search(r"intermediate|ffn|inner|mlp_dim", key):
            return 8 * self.random.randrange(3, 20)
        if re.search(r"max_position|n_positions|max_seq", key):
            return self.random.randrange(40, 90)
        return None


def _sample(config_class: Any, name: str, draw: Draw | None, read: set[str]) -> tuple[Any, dict[str, Any]] | None:
    """A configuration object and what a minimal config.json of it says; ``None`` where the class refuses the drawn values."""
    said: dict[str, Any] = {}
    try:
        if draw is not None:
            said = draw.overrides(config_class().to_dict(), read)
            said["pad_token_id"] = 0
        config = config_class(**json.loads(json.dumps(said)))
        with torch.device("meta"):
            model = getattr(transformers, name)(config)
    except Exception:  # whatever a class raises, it refuses the values
        if draw is None:
            raise
        return None
    return model, {**said, "architectures": [name]}


# --- comparing ----------------------------------------------------------------------------------------------------------------


def _expected(model: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _expected_kinds(model: Any) -> dict[str, str]:
    """The kind of every weight of a module that quantizers and adapters look for."""
    kinds = {}
    for name, _ in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        kind = next((kind for kind, cls in KIND_OF_MODULE.items() if isinstance(module, cls)), None)
        if leaf == "weight" and kind is not None:
            kinds[name] = kind
    return kinds


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    rows = Counter()
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            rows[
                f"{re.sub(r'[.][0-9]+(?=[.]|$)', '.*', name)}: ours {ours.get(name)}, transformers {theirs.get(name)}"
            ] += 1
    return "\n".join(f"  {text} (x{count})" for text, count in rows.items())


def _compare(model: Any, said: dict[str, Any], model_type: str) -> None:
    full = json.loads(model.config.to_json_string(use_diff=False))
    for config in ({**said, "model_type": model_type}, {**full, "architectures": said["architectures"]}):
        found = describe(ConfigReader(config))
        assert isinstance(found, Skeleton), f"{said['architectures']}: {found}"
        assert found.architecture.replace("_", "").lower() == said["architectures"][0].replace("_", "").lower()
        ours = {tensor.name: tensor.shape for tensor in found.tensors}
        assert not _differences(ours, _expected(model)), f"{said}\n{_differences(ours, _expected(model))}"
        kinds = {name: kind for name, kind in found.kinds.items() if kind in KIND_OF_MODULE}
        assert not _differences(kinds, _expected_kinds(model)), _differences(kinds, _expected_kinds(model))
        stored = set(model.state_dict())
        buffers = {name: tuple(buffer.shape) for name, buffer in model.named_buffers() if name in stored}
        assert not _differences({b.name: b.shape for b in found.buffers}, buffers)


def _cases() -> list[Any]:
    return [
        pytest.param(model_type, name, id=f"{model_type}-{name}")
        for model_type in described_model_types()
        for name in described_classes(model_type)
    ]


@pytest.mark.parametrize(("model_type", "name"), _cases())
def test_parameters_are_those_that_transformers_builds(model_type: str, name: str) -> None:
    """Class defaults and drawn dimensions and flags: every parameter's name and shape, every module's kind, every stored buffer."""
    config_class = getattr(transformers, name).config_class
    model, said = _sample(config_class, name, None, set())
    _compare(model, said, model_type)
    found = describe(ConfigReader({**said, "model_type": model_type}))
    assert isinstance(found, Skeleton)
    built = 0
    for seed in range(ATTEMPTS):
        sample = _sample(config_class, name, Draw(seed), set(found.assumed))
        if sample is not None:
            _compare(*sample, model_type)
            built += 1
        if built == DRAWS:
            break
    assert built, "the class refused all drawn values"
