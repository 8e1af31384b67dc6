"""llama.cpp's cells and states against what it was measured to allocate, and the laws of its padding."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_models import NAMES, facts_of, made
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.errors import UsageError
from hubaudit.estimate.infer import estimate
from hubaudit.facts.model import understand
from hubaudit.types import Component, ModelFacts, Workload

MIB = 2**20


def part(facts: ModelFacts, name: str, **more: Any) -> Component:
    """One component under llama.cpp."""
    made_of = estimate(facts, Workload(**({"mode": "kv", "runtime": "llama.cpp"} | more)))
    return next(item for item in made_of.components if item.id == name)


def qwen35(layers: int, kv_heads: int, value_heads: int) -> ModelFacts:
    """A hybrid of Qwen3.5's kind, its states' convolution as the files have it."""
    text = {
        "model_type": "qwen3_5_text", "num_hidden_layers": layers, "hidden_size": 5120, "num_attention_heads": 24, "num_key_value_heads": kv_heads,
        "head_dim": 256, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * (layers // 4),
        "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": value_heads, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "dtype": "bfloat16", "vocab_size": 248320, "max_position_embeddings": 262144, "intermediate_size": 17408,
    }  # fmt: skip
    channels = 2 * 16 * 128 + value_heads * 128
    tensors = {"model.language_model.layers.0.linear_attn.conv1d.weight": ("BF16", (channels, 1, 4))}
    return understand(made({"model_type": "qwen3_5", "architectures": ["X"], "text_config": text}, tensors))


def test_hybrid_of_27_billion() -> None:
    """64 KiB a token for 16 attention layers, and 3,268,608 bytes of float32 state × 48 layers × (1 + drafts).

    Ollama 0.35.1 / llama.cpp, qwen35 27B: figures F1936 to F1938 of the corpus (code index file 70958236989).
    """
    facts = qwen35(64, 4, 48)
    assert part(facts, "kv_cache", prompt_tokens=8192, new_tokens=0).bytes == 64 * 1024 * 8192
    for drafts in (0, 3):
        assert part(facts, "recurrent_state", draft_tokens=drafts).bytes == 3_268_608 * 48 * (1 + drafts)


@pytest.mark.parametrize(("tokens", "mebibytes"), [(8192, 256), (32768, 1024)])
def test_hybrid_of_nine_billion(tokens: int, mebibytes: int) -> None:
    """ornith:9b (qwen35, 8 attention and 24 recurrent layers): 256 MiB at 8,192 tokens, 1,024 at 32,768 (F1939, F1940)."""
    cells = part(qwen35(32, 4, 32), "kv_cache", prompt_tokens=tokens, new_tokens=0)
    assert cells.bytes == mebibytes * MIB


def test_latent_attention_before_and_after_its_conversion() -> None:
    """DeepSeek-V2-Lite: 276,480 bytes a token with all heads, 2,160 MiB at 8,192 (F1941); 27 × 576 × 2 where the GGUF holds the latent."""
    facts = facts_of("deepseek-v2-lite")
    assert part(facts, "kv_cache", prompt_tokens=8192, new_tokens=0, cache="expanded").bytes == 2160 * MIB
    assert part(facts, "kv_cache", prompt_tokens=8192, new_tokens=0).bytes == 27 * 576 * 2 * 8192


def test_attention_and_state_in_every_layer() -> None:
    """Falcon-H1-7B: 45,056 bytes a token, and 44 × 3,188,736 bytes of float32 state (F1942, F1943)."""
    config = {
        "model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "num_hidden_layers": 44, "hidden_size": 3072, "head_dim": 128,
        "num_attention_heads": 12, "num_key_value_heads": 2, "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_d_state": 256,
        "mamba_n_groups": 1, "mamba_d_conv": 4, "torch_dtype": "bfloat16", "vocab_size": 130048, "intermediate_size": 12288,
        "max_position_embeddings": 262144,
    }  # fmt: skip
    facts = understand(made(config, {"model.layers.0.mamba.conv1d.weight": ("BF16", (3584, 1, 4))}))
    assert part(facts, "kv_cache", prompt_tokens=1024, new_tokens=0).bytes == 45_056 * 1024
    assert part(facts, "recurrent_state").bytes == 140_304_384


def glm_dsa(types: list[str]) -> ModelFacts:
    """A model of GLM-5's kind: latent attention, and an indexer in the layers that ``types`` calls full."""
    config = {
        "model_type": "glm_moe_dsa", "architectures": ["GlmMoeDsaForCausalLM"], "num_hidden_layers": len(types), "hidden_size": 6144,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "q_lora_rank": 2048, "num_attention_heads": 64,
        "num_key_value_heads": 64, "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048, "indexer_types": types, "vocab_size": 154880,
        "torch_dtype": "bfloat16", "max_position_embeddings": 202752, "intermediate_size": 12288,
    }  # fmt: skip
    return understand(made(config))


@pytest.mark.parametrize(("indexers", "mebibytes"), [(78, 663.0), (21, 178.5)])
def test_index_keys_beside_the_latent(indexers: int, mebibytes: float) -> None:
    """GLM-5.2, 65,536 cells of q8_0: the indexer's cache went from 663.00 to 178.50 MiB when only full layers had one (llama.cpp issue 26382)."""
    facts = glm_dsa(["full"] * indexers + ["shared"] * (78 - indexers))
    cells = part(facts, "kv_cache", prompt_tokens=65_536, new_tokens=0, kv_dtype="q8_0")
    latent = 78 * (512 + 64) * 34 // 32 * 65_536
    assert cells.bytes - latent == mebibytes * MIB


def deepseek_v4(ratios: list[int]) -> ModelFacts:
    """DeepSeek-V4-Flash's caches, with ``ratios`` tokens an entry."""
    config = {
        "model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], "num_hidden_layers": len(ratios), "hidden_size": 4096,
        "head_dim": 512, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512, "sliding_window": 128, "compress_ratios": ratios,
        "num_attention_heads": 64, "num_key_value_heads": 1, "qk_rope_head_dim": 64, "vocab_size": 129280, "torch_dtype": "bfloat16",
        "max_position_embeddings": 1048576, "moe_intermediate_size": 2048,
    }  # fmt: skip
    return understand(made(config))


def test_compressed_caches_of_deepseek_v4() -> None:
    """DeepSeek-V4-Flash at n_ctx 64000 in bf16, by the log of llama.cpp issue 27680.

    The window's cache takes 182.75 MiB for 4,352 cells in 43 layers (ubatch 4096; 768 cells at the default of 512), the compressors' states
    1.31 (csa, 21 layers), 10.00 (hca, 20) and 0.33 MiB (lid, 21). The compressed cells are those of llama-kv-cache-dsv4.cpp.
    """
    facts = deepseek_v4([0, 0, *[4, 128] * 20, 4])
    cells = part(facts, "kv_cache", prompt_tokens=64_000, new_tokens=0, kv_dtype="bf16")
    window = int(182.75 * MIB) // 4352 * 768
    csa = 21 * (512 + 128) * 2 * 16_128  # 16,000 entries in whole 256
    hca = 20 * 512 * 2 * 512  # 500 entries
    assert cells.bytes == window + csa + hca
    states = 2 * 8 * 1024 * 4 * 21 + 2 * 128 * 512 * 4 * 20 + 2 * 8 * 256 * 4 * 21
    assert part(facts, "recurrent_state").bytes == states
    assert round(states / MIB, 2) == round(1.3125 + 10.0 + 0.328125, 2)


def test_what_llama_cpp_was_not_read_for_is_left_out() -> None:
    """Other ratios than 4 and 128, and other models' index keys: no cache, and the reason."""
    config = {"compress_rates": {"compressed_sparse_attention": 8, "heavily_compressed_attention": 16}}
    facts = understand(made({"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], **config}))
    made_of = estimate(facts, Workload(mode="kv", runtime="llama.cpp"))
    assert "4 or 128" in made_of.omitted[0].reason
    facts = understand(
        made(
            {
                "model_type": "minimax_m3_vl_text",
                "architectures": ["MiniMaxM3VLForCausalLM"],
                "layer_types": ["minimax_m3_sparse"] * 2,
                "num_hidden_layers": 2,
            }
        )
    )
    made_of = estimate(facts, Workload(mode="kv", runtime="llama.cpp"))
    assert "index keys of minimax_m3_vl_text" in made_of.omitted[0].reason


def test_the_compute_buffer_of_llama_3() -> None:
    """The log of Llama 3 8B at n_ctx 512: compute buffer 258.50 MiB, KV buffer 64.00 MiB (code index file 47209433997)."""
    facts = facts_of("llama-3.1-8b")
    assert part(facts, "activations", mode="infer").bytes == 258.5 * MIB
    assert part(facts, "kv_cache", prompt_tokens=512, new_tokens=0).bytes == 64 * MIB


@pytest.mark.parametrize(
    ("kv_dtype", "bytes_of_32"),
    [
        ("auto", 64),
        ("f16", 64),
        ("f32", 128),
        ("bf16", 64),
        ("q8_0", 34),
        ("q5_1", 24),
        ("q5_0", 22),
        ("q4_1", 20),
        ("q4_0", 18),
    ],
)
def test_block_types(kv_dtype: str, bytes_of_32: int) -> None:
    """Blocks of 32 elements as ggml packs them (gguf 0.19.0, GGML_QUANT_SIZES); f16 where nothing is said, whatever the model's dtype."""
    cells = part(facts_of("qwen2-0.5b-instruct"), "kv_cache", prompt_tokens=256, new_tokens=0, kv_dtype=kv_dtype)
    assert cells.bytes == 256 * 24 * 2 * 128 // 32 * bytes_of_32


def test_windows_where_llama_cpp_knows_them() -> None:
    """gpt-oss-20b: 12 layers of 128 + 512 cells, padded to 768, and 12 of all; --swa-full keeps all in all 24."""
    facts = facts_of("gpt-oss-20b")
    row_bytes = 2 * 8 * 64 * 2
    windows = part(facts, "kv_cache", prompt_tokens=10_000, new_tokens=0)
    assert windows.bytes == 12 * row_bytes * (768 + 10_240)
    whole = part(facts, "kv_cache", prompt_tokens=10_000, new_tokens=0, cache="swa_full")
    assert whole.bytes == 24 * row_bytes * 10_240


def test_windows_that_llama_cpp_does_not_know() -> None:
    """Mistral 7B v0.1 has a window of 4,096; llama.cpp's llama architecture keeps every token, and the notes say so."""
    facts = facts_of("mistral-7b-v0.1")
    made_of = estimate(facts, Workload(mode="kv", runtime="llama.cpp", prompt_tokens=16_384, new_tokens=0))
    assert made_of.total_bytes == 131_072 * 16_384
    assert any("whatever the model's window" in line for line in made_of.assumptions)


def test_rows_that_blocks_do_not_divide() -> None:
    """Falcon's keys of 64 elements are two q8_0 blocks; keys of 80 are none, and llama.cpp refuses them."""
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 80, "num_hidden_layers": 1, "num_attention_heads": 1,
        "num_key_value_heads": 1, "vocab_size": 10, "intermediate_size": 8, "max_position_embeddings": 512,
    }  # fmt: skip
    with pytest.raises(UsageError, match="do not divide rows of 80"):
        estimate(understand(made(config)), Workload(mode="kv", runtime="llama.cpp", kv_dtype="q8_0"))


def test_what_is_not_modelled_is_left_out_with_its_reason() -> None:
    """Cross-attention, and kinds of layers that the table does not have."""
    made_of = estimate(facts_of("t5-small"), Workload(mode="kv", runtime="llama.cpp"))
    assert "cross-attention" in made_of.omitted[0].reason


@settings(deadline=None)  # the first of each fixture reads it
@given(name=st.sampled_from(NAMES), batch=st.integers(1, 9), tokens=st.integers(1, 9000), more=st.integers(0, 300))
def test_cells_come_in_steps_and_never_fall(name: str, batch: int, tokens: int, more: int) -> None:
    """Linear in the sequences; the same for all lengths up to the next multiple of 256; never less for more tokens."""
    facts = facts_of(name)

    def size(batch_size: int, prompt_tokens: int) -> int:
        workload = Workload(
            mode="kv", runtime="llama.cpp", batch_size=batch_size, prompt_tokens=prompt_tokens, new_tokens=0
        )
        return estimate(facts, workload).total_bytes

    assert size(batch, tokens) == batch * size(1, tokens)
    assert size(1, tokens) <= size(1, tokens + more)
    assert size(1, tokens) == size(1, -(-tokens // 256) * 256)
