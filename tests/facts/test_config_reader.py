"""What the reader answers, and where it says it read that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.facts import config_classes
from hubaudit.facts.config_reader import ConfigReader

# Qwen/Qwen2-0.5B-Instruct, config.json, as far as it matters here.
QWEN2_0_5B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "max_position_embeddings": 32768,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
# openai-community/gpt2, config.json.
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(
    [
        "model_type",
        "hidden_size",
        "num_hidden_layers",
        "n_layer",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "layer_types",
        "sliding_window",
        "text_config",
        "thinker_config",
        "llm_config",
        "vision_config",
        "tie_word_embeddings",
        "multi_query_attention",
    ]
)
MODEL_TYPES = st.sampled_from(
    ["qwen2", "llama", "gpt2", "t5", "mistral", "gemma3", "qwen2_vl", "qwen3_omni_moe", "llava", "chatglm", "nougat"]
)


OBJECTS = st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3), max_size=6)
JSON = SCALARS | st.lists(SCALARS | OBJECTS, max_size=3) | OBJECTS | st.dictionaries(KEYS, OBJECTS, max_size=3)


def test_a_value_of_the_file_names_its_key() -> None:
    """What the file says is answered with file and key."""
    answer = ConfigReader(QWEN2_0_5B).integer("num_hidden_layers")
    assert (answer.value, answer.where) == (24, "config.json#num_hidden_layers")


def test_the_file_is_read_under_the_classes_own_names() -> None:
    """GPT-2 calls the hidden size ``n_embd`` (GPT2Config.attribute_map); ``where`` names the key that is in the file."""
    reader = ConfigReader(GPT2)
    assert (reader.integer("hidden_size").value, reader.integer("hidden_size").where) == (768, "config.json#n_embd")
    assert reader.integer("max_position_embeddings").where == "config.json#n_positions"
    assert reader.integer("n_layer").value == 12


def test_torch_dtype_is_dtype() -> None:
    """``torch_dtype`` is the older spelling of ``dtype`` in every class (PreTrainedConfig.__post_init__)."""
    assert ConfigReader(QWEN2_0_5B).string("dtype").where == "config.json#torch_dtype"
    both = ConfigReader({**QWEN2_0_5B, "dtype": "float16"}).string("dtype")
    assert (both.value, both.where) == ("float16", "config.json#dtype")


def test_a_class_default_is_marked() -> None:
    """Qwen2Config declares ``num_key_value_heads: int | None = 32``; that is no word of the checkpoint, and is marked so."""
    config = {key: value for key, value in QWEN2_0_5B.items() if key != "num_key_value_heads"}
    answer = ConfigReader(config).integer("num_key_value_heads")
    assert (answer.value, answer.where) == (32, "default:qwen2")


def test_an_explicit_null_is_not_replaced_by_a_default() -> None:
    """DeepSeek-V2-Lite says ``"q_lora_rank": null``; the class default of 1536 would add 42,508,800 parameters."""
    reader = ConfigReader({"model_type": "deepseek_v2", "q_lora_rank": None})
    answer = reader.integer("q_lora_rank")
    assert (answer.value, answer.where) == (None, "config.json#q_lora_rank is null")
    assert reader.is_null("q_lora_rank")
    assert ConfigReader({"model_type": "deepseek_v2"}).integer("q_lora_rank").value == 1536
    assert not ConfigReader({"model_type": "deepseek_v2"}).is_null("q_lora_rank")


def test_a_value_that_the_class_takes_from_another_key_is_computed_from_the_file() -> None:
    """LlamaConfig.__post_init__: absent or null key/value heads are the attention heads, and head_dim is their share of the width."""
    for config in ({"model_type": "llama"}, {"model_type": "llama", "num_key_value_heads": None, "head_dim": None}):
        reader = ConfigReader({**config, "hidden_size": 768, "num_attention_heads": 6})
        kv_heads, head_dim = reader.integer("num_key_value_heads"), reader.integer("head_dim")
        assert (kv_heads.value, kv_heads.where) == (6, "rule:llama: num_key_value_heads = num_attention_heads")
        assert (head_dim.value, head_dim.where) == (128, "rule:llama: head_dim = hidden_size // num_attention_heads")


def test_a_rule_over_an_unusable_operand_is_unknown() -> None:
    """Nothing is divided by zero, by null or by a string: the answer is unknown, and names the operand."""
    for heads in (0, None, "12", [12], True):
        answer = ConfigReader({"model_type": "llama", "hidden_size": 768, "num_attention_heads": heads}).integer(
            "head_dim"
        )
        assert answer.value is None
        assert "config.json#num_attention_heads" in answer.where


def test_a_computed_value_is_never_a_default() -> None:
    """Qwen2Config lists the layer types itself where the file does not; 32 of them belong to its 32 default layers only."""
    answer = ConfigReader(QWEN2_0_5B).strings("layer_types")
    assert (answer.value, answer.where) == (
        None,
        "config.json does not say layer_types, and the class qwen2 computes it",
    )


def test_a_value_that_depends_on_a_flag_is_known_while_the_flag_keeps_its_default() -> None:
    """Gemma3TextConfig halves its default window of 4096 where ``use_bidirectional_attention`` is set."""
    assert ConfigReader({"model_type": "gemma3_text"}).integer("sliding_window").value == 4096
    assert (
        ConfigReader({"model_type": "gemma3_text", "use_bidirectional_attention": False})
        .integer("sliding_window")
        .value
        == 4096
    )
    assert (
        ConfigReader({"model_type": "gemma3_text", "use_bidirectional_attention": True}).integer("sliding_window").value
        is None
    )


def test_a_default_that_only_the_code_of_the_class_holds_is_known() -> None:
    """Gemma3TextConfig.__post_init__ reads ``kwargs.get("sliding_window_pattern", 6)``."""
    answer = ConfigReader({"model_type": "gemma3_text"}).integer("sliding_window_pattern")
    assert (answer.value, answer.where) == (6, "default:gemma3_text")


def test_what_nobody_says_is_unknown_with_the_reason() -> None:
    """No model type, a foreign model type, and a class without the attribute are three different reasons."""
    assert ConfigReader({}).integer("head_dim").where == "config.json does not say head_dim, and names no model type"
    foreign = ConfigReader({"model_type": "foo"}).integer("head_dim")
    assert foreign.where == "config.json does not say head_dim, and model type 'foo' is not in the table"
    assert (
        ConfigReader(GPT2).integer("head_dim").where
        == "config.json does not say head_dim, nor does the class gpt2 have it"
    )


@pytest.mark.parametrize("value", [True, -1, 1.5, float("nan"), float("inf"), 2**53 + 1, "24", [24], {"a": 24}])
def test_what_is_no_count_is_refused_and_shown(value: Any) -> None:
    """A number that no layer count can be gives unknown, and never the class default."""
    answer = ConfigReader({**QWEN2_0_5B, "num_hidden_layers": value}).integer("num_hidden_layers")
    assert answer.value is None
    assert answer.where.startswith("config.json#num_hidden_layers is ")
    assert answer.where.endswith(", not a count")


def test_an_integral_float_is_a_count() -> None:
    """Some writers store counts as floats."""
    assert ConfigReader({"num_hidden_layers": 24.0}).integer("num_hidden_layers").value == 24


def test_the_first_name_in_the_file_wins_over_the_default_of_an_earlier_one() -> None:
    """Defaults are asked for only where the file has none of the names."""
    reader = ConfigReader({"model_type": "qwen2", "n_layer": 3})
    assert reader.integer("num_hidden_layers", "n_layer").where == "config.json#n_layer"
    assert reader.integer("hidden_size", "num_hidden_layers").where == "default:qwen2"


def test_typed_values() -> None:
    """Each getter takes its own type and nothing near it."""
    reader = ConfigReader({"a": True, "b": 1, "c": "x", "d": [1, 2], "e": ["x"], "f": 0.5, "g": []})
    assert reader.flag("a").value is True
    assert reader.flag("b").value is None
    assert reader.number("f").value == 0.5
    assert reader.number("a").value is None
    assert reader.string("c").value == "x"
    assert reader.integers("d").value == (1, 2)
    assert reader.integers("e").value is None
    assert reader.strings("e").value == ("x",)
    assert reader.strings("g").value == ()


def test_a_section_is_read_with_the_class_that_the_wrapper_gives_it() -> None:
    """Gemma3Config reads text_config as Gemma3TextConfig, and vision_config as what it names, or else as siglip_vision_model."""
    reader = ConfigReader({"model_type": "gemma3", "text_config": {"num_hidden_layers": 34}, "vision_config": {}})
    text, vision = reader.section("text_config"), reader.section("vision_config")
    assert text is not None
    assert vision is not None
    assert (text.model_type, vision.model_type) == ("gemma3_text", "siglip_vision_model")
    assert text.integer("num_hidden_layers").where == "config.json#text_config.num_hidden_layers"
    assert text.integer("head_dim").where == "default:gemma3_text"
    assert text.integer("heads").where.startswith("config.json#text_config does not say heads")
    assert reader.section("audio_config") is None


def test_the_language_model_is_the_section_that_transformers_picks() -> None:
    """``get_text_config(decoder=True)``: text_config, or a section inside a section (Qwen3-Omni's thinker)."""
    gemma = ConfigReader({"model_type": "gemma3", "text_config": {"hidden_size": 2560}})
    assert gemma.language_model().integer("hidden_size").where == "config.json#text_config.hidden_size"
    omni = ConfigReader({"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {"hidden_size": 2048}}})
    assert omni.language_model().integer("hidden_size").where == "config.json#thinker_config.text_config.hidden_size"
    assert omni.language_model().model_type == "qwen3_omni_moe_text"
    flat = ConfigReader(QWEN2_0_5B)
    assert flat.language_model() is flat


def test_what_the_wrapper_puts_into_a_section_is_its_default() -> None:
    """VoxtralConfig fills text_config up with the width of its own language model, 3072, and not with LlamaConfig's 4096."""
    given = ConfigReader({"model_type": "voxtral", "text_config": {"vocab_size": 131072}}).section("text_config")
    assert given is not None
    assert given.model_type == "llama"
    for text in (given, ConfigReader({"model_type": "voxtral"}).language_model()):
        assert (text.integer("hidden_size").value, text.integer("hidden_size").where) == (3072, "default:voxtral")
    other = ConfigReader({"model_type": "voxtral", "text_config": {"model_type": "qwen2"}}).language_model()
    assert other.integer("hidden_size").where == "default:qwen2"


def test_a_word_that_asks_for_computing_is_not_the_value() -> None:
    """FalconMambaConfig takes time_step_rank "auto" for ceil(hidden_size / 16)."""
    answer = ConfigReader({"model_type": "falcon_mamba", "hidden_size": 4096, "time_step_rank": "auto"}).integer(
        "time_step_rank"
    )
    assert (answer.value, answer.where) == (256, "rule:falcon_mamba: time_step_rank = ceil(hidden_size / 16)")


def test_a_key_that_the_class_overrules_is_told() -> None:
    """T5Config sets tie_word_embeddings to true whatever the file says; GPT2Config does not."""
    reader = ConfigReader({"model_type": "t5", "tie_word_embeddings": False})
    assert reader.flag("tie_word_embeddings").value is False
    assert reader.rewrites("tie_word_embeddings")
    assert not ConfigReader(GPT2).rewrites("tie_word_embeddings")


def test_a_type_that_is_read_as_another_names_that_one() -> None:
    """Kimi-K2.5's text_config calls itself kimi_k2, and is read with DeepseekV3Config (Kimi_K25Config.__post_init__)."""
    reader = ConfigReader({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2"}}).language_model()
    assert (reader.model_type, reader.known_type) == ("kimi_k2", "deepseek_v3")
    assert reader.integer("q_lora_rank").where == "default:deepseek_v3"


def test_old_flat_files_are_read_as_their_language_model() -> None:
    """Qwen2VLConfig reads a flat file's keys into text_config; their ``where`` stays the flat key."""
    reader = ConfigReader(
        {"model_type": "qwen2_vl", "hidden_size": 1536, "vision_config": {"depth": 32}}
    ).language_model()
    assert reader.model_type == "qwen2_vl_text"
    assert reader.integer("hidden_size").where == "config.json#hidden_size"
    assert reader.integer("intermediate_size").where == "default:qwen2_vl_text"


def test_foreign_model_types_are_read_under_well_known_names() -> None:
    """THUDM/chatglm3-6b: transformers has no class for it, and none of its keys has the canonical name."""
    config = {
        "model_type": "chatglm",
        "num_layers": 28,
        "padded_vocab_size": 65024,
        "multi_query_group_num": 2,
        "kv_channels": 128,
    }
    reader = ConfigReader({**config, "multi_query_attention": True})
    assert reader.integer("num_hidden_layers").where == "config.json#num_layers"
    assert reader.integer("vocab_size").value == 65024
    assert reader.integer("num_key_value_heads").value == 2
    assert ConfigReader({**config, "multi_query_attention": False}).integer("num_key_value_heads").value is None


def test_synonyms_do_not_speak_for_classes_that_transformers_knows() -> None:
    """A stray ``n_layer`` in a Qwen2 file is read by nobody."""
    assert ConfigReader({"model_type": "qwen2", "n_layer": 3}).integer("num_hidden_layers").where == "default:qwen2"


def test_foreign_wrappers_are_read_through_their_language_section() -> None:
    """InternVL's remote code keeps the language model under llm_config."""
    reader = ConfigReader(
        {"model_type": "internvl_chat", "llm_config": {"model_type": "qwen2", "num_hidden_layers": 24}}
    ).language_model()
    assert (reader.model_type, reader.integer("num_hidden_layers").value) == ("qwen2", 24)


def test_a_mistral_file_with_layer_types_is_read_as_ministral() -> None:
    """AutoConfig.from_pretrained takes MinistralConfig then."""
    reader = ConfigReader({"model_type": "mistral", "layer_types": ["full_attention"]})
    assert reader.known_type == "ministral"
    assert reader.strings("layer_types").value == ("full_attention",)
    assert ConfigReader({"model_type": "mistral"}).known_type == "mistral"


def test_the_table_is_loaded_only_for_what_the_file_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that answers by itself costs no table."""

    def refuse(name: str) -> dict[str, Any]:
        raise AssertionError(name)

    monkeypatch.setattr(config_classes, "table", refuse)
    assert ConfigReader(QWEN2_0_5B).integer("hidden_size").value == 896


@given(
    st.dictionaries(KEYS, JSON, max_size=8), MODEL_TYPES | st.none(), st.lists(KEYS | st.text(max_size=5), max_size=3)
)
def test_no_file_makes_the_reader_raise(config: dict[str, Any], model_type: str | None, names: list[str]) -> None:
    """Whatever JSON stands in config.json, every answer is a usable value or a reason."""
    whole = ConfigReader(config, model_type=model_type)
    for reader in (whole, whole.language_model(), *(part for name in names if (part := whole.section(name)))):
        answers = [
            getter(*names)
            for getter in (reader.integer, reader.number, reader.flag, reader.string, reader.integers, reader.strings)
        ]
        for answer in answers:
            assert answer.where
        count = reader.integer("num_hidden_layers", "num_key_value_heads").value
        assert count is None or (type(count) is int and 0 <= count <= 2**53)


@given(JSON)
def test_no_json_value_in_place_of_an_object_makes_the_reader_raise(config: Any) -> None:
    """A config.json that holds no object answers nothing."""
    assert ConfigReader(config).language_model().integer("hidden_size").where
