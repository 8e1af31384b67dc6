"""Facts of one model from config and weights, from either alone, and where the two disagree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fixture_models import facts_of, made
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import CannotAuditError
from hubaudit.estimate.infer import estimate
from hubaudit.facts.model import understand
from hubaudit.types import ReadProblem, RepoSnapshot, WeightIndex, WeightSet, Workload

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, VOCAB, LAYERS = 64, 4, 2, 16, 96, 100, 3
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": WIDTH,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def llama(
    dtype: str = "BF16", *, layers: int = LAYERS, head: bool = True, kv_heads: int = KV_HEADS
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of a small llama."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(layers):
        block = f"model.layers.{layer}"
        shapes |= {
            f"{block}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{block}.self_attn.k_proj.weight": (kv_heads * HEAD_DIM, HIDDEN),
            f"{block}.self_attn.v_proj.weight": (kv_heads * HEAD_DIM, HIDDEN),
            f"{block}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{block}.mlp.gate_proj.weight": (WIDTH, HIDDEN),
            f"{block}.mlp.up_proj.weight": (WIDTH, HIDDEN),
            f"{block}.mlp.down_proj.weight": (HIDDEN, WIDTH),
            f"{block}.input_layernorm.weight": (HIDDEN,),
            f"{block}.post_attention_layernorm.weight": (HIDDEN,),
        }
    if head:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    return {name: (dtype, shape) for name, shape in shapes.items()}


def subjects(config: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...]]]) -> set[str]:
    """What config and files disagree on."""
    return {item.subject for item in understand(made(config, tensors)).disagreements}


def test_qwen2_is_what_its_card_says() -> None:
    """Qwen2-0.5B-Instruct: 494,032,768 parameters, 24 layers, hidden 896, 14 heads, 2 kv heads, head dim 64, tied (its config.json, Hub total)."""
    facts = facts_of("qwen2-0.5b-instruct")
    assert facts.parameters is not None
    assert facts.parameters.total == facts.parameters.loaded == facts.parameters.active == 494_032_768
    assert facts.parameters.by_dtype == {"BF16": 494_032_768}
    assert facts.stored_bytes == 988_065_536
    numbers = (facts.layers, facts.hidden_size, facts.attention_heads, facts.kv_heads, facts.head_dim, facts.vocab_size)
    assert [fact.value for fact in numbers] == [24, 896, 14, 2, 64, 151_936]
    assert facts.tied_embeddings.value is True
    assert facts.layers.where == "config.json#num_hidden_layers"
    assert facts.disagreements == ()


def test_llama_is_untied_and_grouped() -> None:
    """Llama-3.1-8B: 8,030,261,248 parameters, 32 layers, 32 heads, 8 kv heads, head dim 128, an untied head, context 131,072."""
    facts = facts_of("llama-3.1-8b")
    assert facts.parameters is not None
    assert facts.parameters.total == 8_030_261_248
    assert [fact.value for fact in (facts.layers, facts.attention_heads, facts.kv_heads, facts.head_dim)] == [
        32,
        32,
        8,
        128,
    ]
    assert (facts.tied_embeddings.value, facts.max_positions.value) == (False, 131_072)


def test_agreeing_witnesses_have_nothing_to_report() -> None:
    """A consistent repository gives no disagreement."""
    assert subjects(CONFIG, llama()) == set()


@pytest.mark.parametrize(
    ("change", "tensors", "subject"),
    [
        ({"torch_dtype": "float32"}, llama(), "dtype"),
        ({}, llama("F32"), "dtype"),
        ({"num_hidden_layers": 4}, llama(), "layers"),
        ({"hidden_size": 128}, llama(), "hidden_size"),
        ({"vocab_size": 101}, llama(), "vocab_size"),
        ({"num_key_value_heads": 4}, llama(), "kv_heads × head_dim"),
        ({"num_attention_heads": 8, "head_dim": 16}, llama(), "attention_heads × head_dim"),
        ({"head_dim": 32}, llama(), "kv_heads × head_dim"),
        ({}, llama(head=False), "tied embeddings"),
    ],
)
def test_each_disagreement_is_reported(
    change: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...]]], subject: str
) -> None:
    """What config and files say differently is named, not averaged."""
    assert subject in subjects(CONFIG | change, tensors)


def test_an_index_that_claims_another_total_is_reported() -> None:
    """metadata.total_size against the bytes of the shards; the files are used."""
    whole = made(CONFIG, llama())
    claims = RepoSnapshot(
        repo_id="made/up",
        revision=None,
        commit=None,
        source="local",
        configs=whole.configs,
        weights=whole.weights,
        indexes=(
            WeightIndex(
                path="model.safetensors.index.json", total_size_bytes=0, weight_map={"gone": "model.safetensors"}
            ),
        ),
    )
    facts = understand(claims)
    assert {item.subject for item in facts.disagreements} == {"index total_size", "index weight_map"}
    assert facts.parameters == understand(whole).parameters


def test_a_tied_head_stored_again_is_named_and_not_loaded() -> None:
    """The Hub counts it, a runtime loads it once."""
    facts = understand(made(CONFIG | {"tie_word_embeddings": True}, llama()))
    assert facts.parameters is not None
    assert facts.parameters.extra == {"tied head": VOCAB * HIDDEN}
    assert facts.parameters.loaded == facts.parameters.total - VOCAB * HIDDEN


def test_weights_alone_still_answer() -> None:
    """Without config.json: parameters, layers, widths and an upper bound of the cache; heads stay unknown, with the reason."""
    facts = understand(made(None, llama()))
    assert facts.parameters is not None
    assert [fact.value for fact in (facts.layers, facts.hidden_size, facts.vocab_size, facts.intermediate_size)] == [
        LAYERS,
        HIDDEN,
        VOCAB,
        WIDTH,
    ]
    assert facts.attention_heads.value is None
    assert "no config.json" in facts.attention_heads.where
    assert any("no config.json" in line for line in facts.missing)
    made_of = estimate(facts, Workload(mode="kv", prompt_tokens=10, new_tokens=0))
    assert made_of.total_bytes == 2 * LAYERS * KV_HEADS * HEAD_DIM * 10 * 2


def test_config_alone_still_answers() -> None:
    """Without weights: the shapes that the config implies give the same count as the files would, and the report says so."""
    with_weights, without = understand(made(CONFIG, llama())), understand(made(CONFIG))
    assert with_weights.parameters is not None
    assert without.parameters is not None
    assert without.parameters.total == with_weights.parameters.total
    assert without.parameters.where.startswith("rule:")
    assert (without.stored_bytes, without.file_bytes) == (None, None)
    assert any("no readable" in line for line in without.missing)


def test_nothing_at_all_cannot_be_audited() -> None:
    """No config and no weights: exit code 5, naming what was wrong with the first file, if any."""
    with pytest.raises(CannotAuditError, match=r"no config\.json"):
        understand(made(None))
    broken = RepoSnapshot(
        repo_id="a/b",
        revision=None,
        commit=None,
        source="local",
        problems=(ReadProblem(path="config.json", reason="not JSON"),),
    )
    with pytest.raises(CannotAuditError, match=r"`config.json` not JSON"):
        understand(broken)


def test_multi_token_prediction_layers_are_counted_apart() -> None:
    """Layers past the last, where the config announces them, are stored and not loaded; the layer count does not include them."""
    facts = understand(made(CONFIG | {"num_nextn_predict_layers": 1}, llama(layers=LAYERS + 1)))
    assert facts.parameters is not None
    one_layer = facts.parameters.extra["mtp"]
    assert facts.parameters.total - one_layer == understand(made(CONFIG, llama())).parameters.total  # type: ignore[union-attr]
    assert facts.disagreements == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        *CONFIG,
        "head_dim",
        "text_config",
        "quantization_config",
        "num_local_experts",
        "layer_types",
        "sliding_window",
        "dtype",
    ]
)


@given(config=st.dictionaries(KEYS, JSON, max_size=12), with_weights=st.booleans())
def test_any_json_as_config_gives_facts_with_reasons(config: dict[str, Any], with_weights: bool) -> None:
    """Whatever config.json holds, there are facts, an unknown one has its reason, and no estimate is a silent zero."""
    facts = understand(made(config, llama() if with_weights else None))
    for fact in (facts.layers, facts.hidden_size, facts.kv_heads, facts.head_dim, facts.vocab_size, facts.dtype):
        assert fact.where
    assert facts.parameters is not None or facts.parameters_reason
    assert facts.layer_plan is not None or facts.layer_plan_reason
    made_of = estimate(facts, Workload())
    assert made_of.total_bytes > 0


def test_a_part_of_the_weights_is_no_count_of_the_model() -> None:
    """With a shard missing the total is what the config implies, or unknown with the reason; never the sum of the rest."""
    whole, half = made(CONFIG, llama()), dict(list(llama().items())[:12])
    for config in (CONFIG, None):
        lost = replace(
            made(config, half),
            chosen=(WeightSet(format="safetensors", files=("model.safetensors",), missing=("gone.safetensors",)),),
        )
        facts = understand(lost)
        if config is None:
            assert facts.parameters is None
            assert "gone.safetensors" in str(facts.parameters_reason)
        else:
            assert facts.parameters is not None
            assert facts.parameters.total == understand(whole).parameters.total  # type: ignore[union-attr]
            assert facts.parameters.where.startswith("rule:")
        assert facts.stored_bytes is None
        assert facts.disagreements == ()


@pytest.mark.parametrize(("model_type", "is_so_by_design"), [("convbert", True), ("bert", False)])
def test_numbers_that_are_of_something_else(model_type: str, is_so_by_design: bool) -> None:
    """ConvBERT makes half as many heads as its config says (head_ratio), as transformers' own models of it show; BERT would be damaged."""
    config = {
        "model_type": model_type,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "vocab_size": 10,
    }
    half = {f"encoder.layer.0.attention.self.{name}.weight": ("F32", (16, 32)) for name in ("query", "key", "value")}
    found = subjects(config, half)
    assert found == (set() if is_so_by_design else {"attention_heads × head_dim", "kv_heads × head_dim"})
