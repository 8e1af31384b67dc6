"""Every described model type against transformers' own modules on the meta device: names, shapes, kinds and stored buffers."""

from __future__ import annotations

import importlib
import json
import random
import re
import warnings
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.skeleton import Skeleton, describe, described_classes, described_model_types, usual_class

if TYPE_CHECKING:
    from collections.abc import Collection

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.oracle

DRAWS = 4  # of a model type's usual class; its other classes differ in their heads
ATTEMPTS = 30
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


UNTOUCHED = re.compile(
    r"_ids?$|_id_|^(architectures|model_type|dtype|torch_dtype|transformers_version|return_dict|output_\w+|use_cache|is_encoder_decoder"
    r"|problem_type|id2label|label2id|chunk_size_feed_forward|rope_\w+|name_or_path|_\w+|\w*(token|index)(_\w+)?)$"
)
#: Model types whose class leaves a value open that a checkpoint's config.json gives.
DEFAULTS_NOT_ENOUGH = {
    "dots1",
    "gemma3n_text",
    "gemma4",
    "gemma4_audio",
    "gemma4_text",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "lfm2_moe",
    "ministral",
    "nemotron",
}
NOT_EXPORTED = {
    "SmolVLMVisionTransformer": "transformers.models.smolvlm.modeling_smolvlm",
    "Idefics3VisionTransformer": "transformers.models.idefics3.modeling_idefics3",
    "Qwen2VisionTransformerPretrainedModel": "transformers.models.qwen2_vl.modeling_qwen2_vl",
}
TIED_T5 = {"tie_word_embeddings": True, "is_decoder": False}
#: What a configuration of these must say besides what is drawn.
GEMMA4_TEXT: list[dict[str, Any]] = [
    {
        "num_hidden_layers": 7,
        "head_dim": 16,
        "global_head_dim": 24,
        "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False,
    },
    {"num_hidden_layers": 8, "head_dim": 16, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    {
        "num_hidden_layers": 8,
        "head_dim": 32,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 24,
        "hidden_size_per_layer_input": 0,
    },
]
GIVEN: dict[str, list[dict[str, Any]]] = {
    "deberta-v2": [
        {},
        {"relative_attention": True, "pos_att_type": "p2c|c2p", "norm_rel_ebd": "layer_norm", "position_buckets": 16},
        {"relative_attention": True, "pos_att_type": ["p2c"], "share_att_key": True, "conv_kernel_size": 3},
        {"relative_attention": True, "pos_att_type": ["c2p"], "embedding_size": 24, "max_relative_positions": 12},
    ],
    "dots1": [{"n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1}],
    "gemma3n_text": [{"num_hidden_layers": 11, "num_kv_shared_layers": kv, "intermediate_size": 48} for kv in (0, 3)],
    "gemma4": [
        {"text_config": text, "vision_config": {}, "audio_config": {"output_proj_dims": 56}} for text in GEMMA4_TEXT
    ]
    + [{"text_config": GEMMA4_TEXT[1], "vision_config": {"use_clipped_linears": True}, "audio_config": None}],
    "gemma4_audio": [{"output_proj_dims": 40}],
    "gemma4_text": GEMMA4_TEXT,
    "mimi": [{"hidden_size": 64, "upsample_groups": 32, "num_attention_heads": 4, "head_dim": 16}],
    "mllama": [{"vision_config": {"max_num_tiles": 4}, "text_config": {"cross_attention_layers": [1]}}],
    "mllama_text_model": [{"cross_attention_layers": [0, 2]}],
    "mllama_vision_model": [{"max_num_tiles": 4}, {"max_num_tiles": 2, "supported_aspect_ratios": [[1, 1], [1, 2]]}],
    "wav2vec2-bert": [{"vocab_size": 40}, {"vocab_size": 40, "position_embeddings_type": "relative"}],
    "lfm2_moe": [{"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"]}],
    "ministral": [{"head_dim": 24}],
    "mamba2": [{"hidden_size": 64, "expand": 2, "num_heads": 8, "head_dim": 16}],
    "gpt_neo": [{"num_layers": 4, "attention_types": [[["global", "local"], 2]]}],
    # transformers ties these whatever the file says: the published totals of test_skeleton.py are the check of the other case
    "mt5": [TIED_T5, TIED_T5 | {"feed_forward_proj": "relu", "is_gated_act": False}],
    "t5": [TIED_T5, TIED_T5 | {"feed_forward_proj": "gated-gelu", "is_gated_act": True}],
    "umt5": [TIED_T5],
}
#: Lists that say each layer's kind, and kinds that class defaults may not show.
LISTS = {"layer_types": set(), "mlp_layer_types": set(), "indexer_types": {"full", "shared"}}


class Draw:
    """Random values for the keys of a configuration, by what their names say, small and consistent with each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 -- draws, not secrets
        self.heads = self.random.choice((4, 8))
        self.head_dim = self.random.choice((8, 16, 24, 32))
        self.hidden = self.heads * self.head_dim if self.random.random() < 0.7 else self.heads * (self.head_dim + 8)
        self.boldness = self.random.choice((0.0, 0.1, 0.3))
        layers = self.random.choice((2, 3, 5, 6))
        self.rules = (
            (r"(^|_)(num_)?(key_value_heads|kv_heads)$", self.random.choice((1, 2, 4))),
            (r"^(num_attention_heads|n_head|n_heads|num_heads|\w+_attention_heads)$", self.heads),
            (r"^(hidden_size|n_embd|d_model|dim|embed_dim)$", self.hidden),
            (r"^(num_hidden_layers|n_layers?|num_layers|(num_)?(encoder|decoder|global)_layers|depth)$", layers),
            (r"^(head_dim|d_kv)$", self.head_dim),
        )

    def overrides(self, defaults: dict[str, Any]) -> dict[str, Any]:
        """New values for the keys of ``defaults``, which is a whole configuration; nested configurations are drawn too."""
        found: dict[str, Any] = {}
        for key, value in defaults.items():
            if isinstance(value, dict) and key.endswith("_config") and key != "per_layer_config":
                found[key] = self.overrides(value) | (
                    {"model_type": value["model_type"]} if "model_type" in value else {}
                )
            elif key == "pad_token_id":
                found[key] = 0
            elif not UNTOUCHED.search(key):
                drawn = self.value(key, value)
                if drawn is not None:
                    found[key] = drawn
        return found

    def value(self, key: str, value: Any) -> Any:
        """A value for ``key``, ``None`` to leave it to the class."""
        if isinstance(value, bool):
            return self.random.random() < 0.5 if self.random.random() < 2 * self.boldness else None
        ruled = next((drawn for pattern, drawn in self.rules if re.search(pattern, key)), None)
        if ruled is not None and not isinstance(value, list):
            return ruled
        if value is None and re.search(r"inner|intermediate|ffn", key):
            value = 1
        if not isinstance(value, int):
            return None
        return self.size(key, value)

    def size(self, key: str, value: int) -> int | None:
        """A count that no rule names."""
        if re.search(r"vocab_size", key):
            return self.random.randrange(300, 400)
        if re.search(r"intermediate|ffn|inner|mlp_dim", key):
            return 8 * self.random.randrange(3, 20)
        if re.search(r"max_position|n_positions|max_seq", key):
            return self.random.randrange(40, 90)
        if self.random.random() < self.boldness:
            return self.random.choice((2 * value, max(1, value // 2), value + 1))
        return None

    def lists(self, config: Any) -> dict[str, Any]:
        """Other orders of the lists that say each layer's kind, as a file may give them."""
        found = {}
        for key, others in LISTS.items():
            kinds = getattr(config, key, None)
            if isinstance(kinds, list) and self.random.random() < 0.5:
                found[key] = [self.random.choice(sorted({*kinds, *others})) for _ in kinds]
        return found


def _class(name: str) -> Any:
    """A transformers class, exported or not."""
    module = NOT_EXPORTED.get(name)
    return getattr(transformers if module is None else importlib.import_module(module), name)


def _build(name: str, said: dict[str, Any]) -> Any:
    config = _class(name).config_class(**json.loads(json.dumps(said)))
    with torch.device("meta"):
        return _class(name)(config)


def _merged(drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    sections = {key: _merged(drawn.get(key, {}), value) for key, value in given.items() if isinstance(value, dict)}
    return drawn | given | sections


def _drawn(model_type: str, name: str, seed: int) -> tuple[Any, dict[str, Any]] | None:
    """A model of drawn values and what a minimal config.json of it says; ``None`` where the class refuses them."""
    draw = Draw(seed)
    config_class = _class(name).config_class
    try:
        said = draw.overrides(config_class().to_dict()) | {"pad_token_id": 0}
        said = _merged(said, draw.random.choice(GIVEN.get(model_type, [{}])))
        said |= draw.lists(config_class(**json.loads(json.dumps(said))))
        return _build(name, said), said
    except Exception:  # noqa: BLE001 -- whatever a class raises, it refuses the values
        return None


# --- comparing ----------------------------------------------------------------------------------------------------------------


def _expected(model: Any, ours: Collection[str]) -> dict[str, Any]:
    """Every parameter once: of the names of a tied one, that which the tables use, else the first."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    chosen = {next((name for name in same if name in ours), same[0]) for same in names.values()}
    return {name: parameter for name, parameter in model.named_parameters(remove_duplicate=False) if name in chosen}


def _expected_kinds(model: Any, names: Collection[str]) -> dict[str, str]:
    """The kind of every weight of a module that quantizers and adapters look for."""
    kinds = {}
    for name in names:
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        kind = next((kind for kind, cls in KIND_OF_MODULE.items() if isinstance(module, cls)), None)
        if leaf == "weight" and kind is not None:
            kinds[name] = kind
    return kinds


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    rows: Counter[str] = Counter()
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            rows[
                f"{re.sub(r'[.][0-9]+(?=[.]|$)', '.*', name)}: ours {ours.get(name)}, transformers {theirs.get(name)}"
            ] += 1
    return "\n".join(f"  {text} (x{count})" for text, count in rows.items())


def _compare(model: Any, said: dict[str, Any], model_type: str, name: str) -> None:
    full = json.loads(model.config.to_json_string(use_diff=False))
    for config in (said, full):
        found = describe(ConfigReader({**config, "model_type": model_type, "architectures": [name]}))
        assert isinstance(found, Skeleton), f"{found}\n{said}"
        assert found.architecture == name
        ours = {tensor.name: tensor.shape for tensor in found.tensors}
        expected = _expected(model, ours)
        shapes = {name: tuple(parameter.shape) for name, parameter in expected.items()}
        assert not (differences := _differences(ours, shapes)), f"{said}\n{differences}"
        kinds = {name: kind for name, kind in found.kinds.items() if kind in KIND_OF_MODULE}
        assert not (differences := _differences(kinds, _expected_kinds(model, expected))), differences
        stored = set(model.state_dict())
        buffers = {name: tuple(buffer.shape) for name, buffer in model.named_buffers() if name in stored}
        ours = {buffer.name: buffer.shape for buffer in found.buffers}
        assert not (differences := _differences(ours, buffers)), differences


def _refused(model_type: str, name: str, said: dict[str, Any]) -> bool:
    """Whether the tables say that they do not describe this."""
    found = describe(ConfigReader({**said, "model_type": model_type, "architectures": [name]}))
    return isinstance(found, str) and found.startswith("not described: ")


def _cases() -> list[Any]:
    return [
        pytest.param(model_type, name, id=f"{model_type}-{name}")
        for model_type in described_model_types()
        for name in described_classes(model_type)
    ]


@pytest.mark.parametrize(("model_type", "name"), _cases())
def test_parameters_are_those_that_transformers_builds(model_type: str, name: str) -> None:
    """Drawn dimensions and flags: every parameter's name and shape, every module's kind, every stored buffer."""
    built, wanted = 0, DRAWS if name == usual_class(model_type) else 1
    for seed in range(zlib.crc32(name.encode()), ATTEMPTS + zlib.crc32(name.encode())):
        sample = _drawn(model_type, name, seed)
        if sample is not None and not _refused(model_type, name, sample[1]):
            _compare(*sample, model_type, name)
            built += 1
        if built == wanted:
            break
    assert built == wanted, f"the class refused all but {built} of the drawn configurations"


@pytest.mark.parametrize("model_type", described_model_types())
def test_class_defaults_give_what_transformers_builds(model_type: str) -> None:
    """A configuration that says nothing but its model type gives the class's own model, or says which value it misses."""
    name = usual_class(model_type)
    said: dict[str, Any] = {"model_type": model_type, "architectures": [name]}
    found = describe(ConfigReader(said))
    if isinstance(found, Skeleton):
        _compare(_build(name, {}), {}, model_type, name)
    else:
        assert model_type in DEFAULTS_NOT_ENOUGH or found.startswith("the configuration has no "), found
