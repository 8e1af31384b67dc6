"""Layer plans by themselves: the tables are sound, nothing that a config may hold makes them raise, and nothing is guessed in silence."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of
from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.layer_plan import plan_layers
from hubaudit.facts.layer_plan_formula import NotKnownError, Scope, is_left_out, parsed
from hubaudit.facts.layer_plan_rows import TABLES, all_rows
from hubaudit.types import CacheTensor, LayerSpec

if TYPE_CHECKING:
    from hubaudit.types import Json

ROOT = Path(__file__).resolve().parents[2]

LLAMA: dict[str, Json] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
TENSOR_FORMULAS = ("per_token", "fixed", "window", "tokens_per_entry", "dtype")


def plan(config: dict[str, Json]) -> tuple[LayerSpec, ...]:
    """The plan of a config that has one."""
    found, reason = plan_layers(ConfigReader(config))
    assert found is not None, reason
    return found


def reason(config: dict[str, Json]) -> str:
    """Why a config has no plan."""
    found, why = plan_layers(ConfigReader(config))
    assert found is None
    assert why
    return why


# --- the tables --------------------------------------------------------------------------------------------------------------------


def test_every_row_names_its_source_and_known_kinds() -> None:
    """A row can be checked by a reader, and every kind it names is described."""
    kinds = table("layer_kinds.toml")
    for model_type, row in all_rows().items():
        assert re.search(r"modeling_|configuration_|models/|config\.json|:", row.source), model_type
        for kind in row.kinds.values():
            names = re.findall(r"[a-z][a-z0-9_]+", kind) if " " in kind else kind.split("+")
            assert " " in kind or set(names) <= kinds.keys(), (model_type, kind)


def test_every_formula_can_be_read() -> None:
    """No formula of the tables is discovered to be broken by a user's config."""
    for row in all_rows().values():
        for formula in (row.layers, row.type, row.shares, *row.dimensions.values()):
            assert formula is None or parsed(formula)
        assert all(parsed(kind) for kind in row.kinds.values() if " " in kind)
    for kind in table("layer_kinds.toml").values():
        assert kind["meaning"]
        assert kind["source"]
        assert all(parsed(tensor[key]) for tensor in kind["tensors"] for key in TENSOR_FORMULAS if key in tensor)


def test_no_model_type_has_two_rows() -> None:
    """The tables do not contradict each other."""
    names = [name for file in TABLES for row in table(file)["plan"] for name in row["types"]]
    assert len(names) == len(set(names)) == len(all_rows())


@pytest.mark.parametrize("model_type", sorted(all_rows()))
def test_a_config_that_says_nothing_is_marked_as_default_or_has_no_plan(model_type: str) -> None:
    """Class defaults are not the checkpoint: where one is used, the layer says so."""
    found, why = plan_layers(ConfigReader({"model_type": model_type}))
    assert (found is None) is (why is not None)
    for layer in found or ():
        assert re.search(r"\b(default|rule):", layer.where) or not layer.tensors, layer


def test_the_page_of_architectures_is_fresh() -> None:
    """docs/architectures.md says what the tables say (``python -m tools.architectures`` writes it)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        tool = importlib.import_module("tools.architectures")
    assert tool.page() == (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")


# --- what a layer says ---------------------------------------------------------------------------------------------------------------


def test_grouped_heads() -> None:
    """Keys and values of every token, as wide as the key/value heads."""
    for index, layer in enumerate(plan(LLAMA)):
        assert (layer.index, layer.kind, layer.shares_cache_with) == (index, "full", None)
        assert layer.tensors == (
            CacheTensor(name="keys", elements_per_token=16),
            CacheTensor(name="values", elements_per_token=16),
        )
        assert "config.json#num_key_value_heads" in layer.where
        assert "models/llama/modeling_llama.py" in layer.where


def test_sliding_layers_keep_one_token_less_than_the_window() -> None:
    """Transformers 5.23 cache_utils.py: the last sliding_window - 1 tokens; Gemma 3's sixth layer is full."""
    config: dict[str, Json] = {**LLAMA, "model_type": "gemma3_text", "head_dim": 32, "num_hidden_layers": 7}
    layers = plan({**config, "sliding_window": 512})
    assert [layer.kind for layer in layers] == ["sliding"] * 5 + ["full", "sliding"]
    assert {tensor.window_tokens for layer in layers for tensor in layer.tensors} == {511, None}


def test_the_list_of_layer_types_wins_over_the_rule() -> None:
    """What config.json says of its layers is not computed again; old names mean what they meant."""
    config: dict[str, Json] = {**LLAMA, "model_type": "gemma2", "layer_types": ["attention", "sliding_attention"]}
    assert [layer.kind for layer in plan(config)] == ["full", "sliding"]


def test_single_layers_can_differ() -> None:
    """per_layer_config gives one layer other dimensions, and the layer says where they were read."""
    config: dict[str, Json] = {
        **LLAMA,
        "model_type": "gemma4_text",
        "head_dim": 8,
        "layer_types": ["full_attention"] * 2,
    }
    config["per_layer_config"] = {"01": {"num_key_value_heads": 4}, "5": {}, "x": 3}
    first, second = plan(config)
    assert [tensor.elements_per_token for tensor in first.tensors] == [16, 16]
    assert [tensor.elements_per_token for tensor in second.tensors] == [32, 32]
    assert "per_layer_config" in second.where


def test_latent_attention_keeps_576_elements_a_token() -> None:
    """DeepSeek-V3 (paper, section 2.1.1; config.json): a latent of 512 and a rotary key of 64 elements for each token and layer."""
    config: dict[str, Json] = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512}
    layers = plan({**config, "qk_rope_head_dim": 64})
    assert len(layers) == 61
    assert {sum(tensor.elements_per_token for tensor in layer.tensors) for layer in layers} == {576}


@pytest.mark.parametrize(
    ("config", "bytes_per_token"),
    [
        # vLLM start-up logs, "Available KV cache memory" / "GPU KV cache size", within 0.12 % of these (Qwen2.5-0.5B, Qwen3-14B, phi-4)
        ({"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2}, 12_288),
        ({"model_type": "qwen3", "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128}, 163_840),
        ({"model_type": "phi3", "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 10}, 204_800),
    ],
)  # fmt: skip
def test_published_bytes_per_token(config: dict[str, Json], bytes_per_token: int) -> None:
    """Two bytes an element, as engines report them."""
    assert sum(tensor.elements_per_token for layer in plan(config) for tensor in layer.tensors) * 2 == bytes_per_token


def test_layers_that_read_another_layers_cache_keep_nothing() -> None:
    """Gemma 3n: the last layers read the last own cache of their type."""
    config: dict[str, Json] = {"model_type": "gemma3n_text", "num_hidden_layers": 12, "num_kv_shared_layers": 3}
    owners = [layer.shares_cache_with for layer in plan(config)]
    assert owners == [None] * 9 + [
        4,
        8,
        8,
    ]  # layer 9 is the second full one; 4 and 8 are the last own full and sliding layers
    assert all(not layer.tensors for layer in plan(config)[9:])


def test_states_do_not_grow_and_have_their_own_dtype() -> None:
    """Mamba 2 (state-spaces/mamba2-2.7b's shape): two states a layer, the recurrent one in float32 whatever the model's dtype."""
    layer = plan({"model_type": "mamba2", "num_hidden_layers": 1, "hidden_size": 2560, "expand": 2, "num_heads": 80})[0]
    assert [tensor.elements_per_token for tensor in layer.tensors] == [0, 0]
    assert [tensor.dtype for tensor in layer.tensors] == [None, "F32"]


def test_cross_attention_grows_with_the_encoder() -> None:
    """T5: keys and values of the decoder's own tokens, and of the encoder's."""
    layer = plan({"model_type": "t5", "num_layers": 1, "num_heads": 4, "d_kv": 8})[0]
    assert [(tensor.grows_with, tensor.elements_per_token) for tensor in layer.tensors] == [
        ("tokens", 32),
        ("tokens", 32),
        ("encoder_tokens", 32),
        ("encoder_tokens", 32),
    ]


def test_every_dtype_is_in_the_table_of_dtypes() -> None:
    """A reader of the plan can look its width up."""
    for model_type in all_rows():
        layers, _ = plan_layers(ConfigReader({"model_type": model_type}))
        assert {t.dtype for layer in layers or () for t in layer.tensors} <= {None, *bits_of()}


# --- what is not known -----------------------------------------------------------------------------------------------------------------


def test_a_model_type_without_a_cache_keeps_nothing() -> None:
    """Encoders of text, images and sound: layers that keep nothing, or none at all where the config does not count them."""
    assert [layer.kind for layer in plan({"model_type": "vit", "num_hidden_layers": 2})] == ["none", "none"]
    assert plan({"model_type": "clip"}) == ()
    assert {layer.kind for layer in plan({"model_type": "bert"})} == {"none"}
    assert {layer.kind for layer in plan({"model_type": "t5", "architectures": ["T5EncoderModel"]})} == {"none"}


def test_an_unknown_model_type_is_not_planned() -> None:
    """Remote code may do anything; a config that looks like LLaMA's does not prove what it keeps."""
    assert "'made-up'" in reason({**LLAMA, "model_type": "made-up", "extra_state_size": 16})
    assert "names no model type" in reason({})
    assert "entropy of the text" in reason({"model_type": "blt"})


def test_a_value_that_the_class_computes_is_a_reason() -> None:
    """Null heads, absurd depths, short lists: the reason says which key."""
    assert "hidden_size // num_attention_heads" in reason({**LLAMA, "num_attention_heads": 0, "head_dim": None})
    assert "4097 layers" in reason({**LLAMA, "num_hidden_layers": 4097})
    assert "1 entries for 2 layers" in reason({**LLAMA, "model_type": "gemma2", "layer_types": ["full_attention"]})
    assert "'odd'" in reason({**LLAMA, "model_type": "gemma2", "layer_types": ["odd", "odd"]})


def test_the_reader_says_which_names_nobody_has() -> None:
    """Formulas read such a name as null, as ``getattr(config, name, None)`` does; other unknown names stay unknown."""
    for config in (LLAMA, {"model_type": "made-up"}, {}):
        assert is_left_out(ConfigReader(config).get("no_such_key_at_all").where)
    computed = ConfigReader({"model_type": "gemma2"}).get("layer_types")
    assert computed.value is None
    assert not is_left_out(computed.where)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = sorted(
    {name for row in all_rows().values() for formula in row.dimensions.values() for name in re.findall(r"[a-z_0-9]+", formula)}
    | {"num_hidden_layers", "layer_types", "per_layer_config", "layers_block_type", "linear_attn_config", "architectures"}
)  # fmt: skip


@given(st.sampled_from(sorted(all_rows())), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8))
def test_nothing_in_a_config_makes_it_raise(model_type: str, keys: dict[str, Any]) -> None:
    """Any JSON under any key: a plan, or a reason."""
    found, why = plan_layers(ConfigReader({**keys, "model_type": model_type}))
    assert (found is None) is bool(why)
    for layer in found or ():
        for tensor in layer.tensors:
            assert min(tensor.elements_per_token, tensor.fixed_elements) >= 0
            assert tensor.tokens_per_entry >= 1
            assert tensor.window_tokens is None or tensor.window_tokens >= 0


# --- formulas ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2 * hidden_size + 1", 129),
        ("no_such_key or 7", 7),
        ("no_such_key is None and hidden_size > 60", True),
        ("'a' if hidden_size % 2 == 0 else 'b'", "a"),
        ("ceil_div(hidden_size, 48)", 2),
        ("item(nested, 'x') + nested['y'][1]", 12),
        ("said('hidden_size')", 64),
        ("said('vocab_size')", None),
        ("doubled + 1", 17),
        ("max(hidden_size, 3) in (64, 5)", True),
        ("last(letters, 'a', 2)", 0),
    ],
)
def test_formulas(formula: str, value: Any) -> None:
    """The operations that the tables use."""
    config: dict[str, Json] = {**LLAMA, "nested": {"x": 2, "y": [5, 10]}, "letters": ["a", "b", "a"]}
    assert Scope(ConfigReader(config), {"doubled": "num_attention_heads * 2"}).evaluate(formula) == value


def test_a_dimension_may_be_defined_by_the_key_of_its_own_name() -> None:
    """Inside its own formula a name means the configuration's key."""
    scope = Scope(ConfigReader(LLAMA), {"head_dim": "head_dim or 5"})
    assert scope.evaluate("head_dim") == 8


@pytest.mark.parametrize("formula", ["1 // (hidden_size - 64)", "no_such_key + 1", "nested[3]", "min()", "'a' * 3 + 1"])
def test_formulas_that_have_no_value(formula: str) -> None:
    """They end in a reason, whatever the config holds."""
    with pytest.raises(NotKnownError):
        Scope(ConfigReader({**LLAMA, "nested": [1]}), {}).evaluate(formula)


@pytest.mark.parametrize(
    "formula", ["().__class__", "__import__('os')", "[x for x in (1, 2)]", "lambda: 1", "open('f')"]
)
def test_formulas_are_not_python(formula: str) -> None:
    """Only what the tables need can be written in them."""
    with pytest.raises((ValueError, NotKnownError)):
        Scope(ConfigReader(LLAMA), {}).evaluate(formula)
