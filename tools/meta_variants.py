"""Configurations that class defaults do not show: other kinds of layer, other rules, caches that are shared, older spellings of keys."""

from __future__ import annotations

from typing import Any

Variant = tuple[str, str, dict[str, Any]]

#: Model type, class, and the keys to set on the small default configuration (``...`` removes one).
VARIANTS: list[Variant] = [
    ("mistral", "MistralForCausalLM", {"sliding_window": None}),
    ("mistral", "MistralForCausalLM", {"sliding_window": 1}),
    ("qwen2", "Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 2, "layer_types": ...}),
    (
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3, "layer_types": ...},
    ),
    ("qwen3_moe", "Qwen3MoeForCausalLM", {"use_sliding_window": True}),
    ("gemma3_text", "Gemma3ForCausalLM", {"use_bidirectional_attention": True, "sliding_window": 20}),
    ("gemma3_text", "Gemma3ForCausalLM", {"sliding_window_pattern": 2, "layer_types": ...}),
    (
        "gemma4_text",
        "Gemma4ForCausalLM",
        {"num_hidden_layers": 14, "num_kv_shared_layers": 4, "layer_types": ..., "per_layer_config": ...},
    ),
    (
        "gemma4_text",
        "Gemma4ForCausalLM",
        {"num_global_key_value_heads": 2, "attention_k_eq_v": True, "global_head_dim": 128, "per_layer_config": ...},
    ),
    ("smollm3", "SmolLM3ForCausalLM", {"use_sliding_window": True, "sliding_window": 12, "layer_types": ...}),
    (
        "cohere2_moe",
        "Cohere2MoeForCausalLM",
        {
            "first_k_dense_replace": 1,
            "prefix_dense_sliding_window_pattern": 1,
            "layer_types": ...,
            "mlp_layer_types": ...,
        },
    ),
    ("llama4_text", "Llama4ForCausalLM", {"no_rope_layers": [0, 1, 0, 1], "layer_types": ...}),
    (
        "falcon",
        "FalconForCausalLM",
        {"multi_query": False, "num_attention_heads": 8, "num_kv_heads": 8, "hidden_size": 256},
    ),
    (
        "falcon",
        "FalconForCausalLM",
        {"new_decoder_architecture": True, "num_kv_heads": 2, "num_attention_heads": 8, "hidden_size": 256},
    ),
    ("gpt_bigcode", "GPTBigCodeForCausalLM", {"multi_query": False}),
    ("mimo_v2_flash", "MiMoV2FlashForCausalLM", {"sliding_window_size": 12}),
    ("glm_moe_dsa", "GlmMoeDsaForCausalLM", {"index_topk_pattern": "FSSF", "indexer_types": ...}),
    ("glm_moe_dsa", "GlmMoeDsaForCausalLM", {"index_topk_freq": 2, "index_skip_topk_offset": 1, "indexer_types": ...}),
    ("hy_v4", "HYV4ForCausalLM", {"indexer_types": ["full", "full", "shared", "full"]}),
    (
        "mistral_large4",
        "MistralLarge4ForConditionalGeneration",
        {"text_config.kv_source_layers": [0, 1, 0, 1], "text_config.no_rope_layers": [1, 0, 1, 0]},
    ),
    (
        "mistral_large4",
        "MistralLarge4ForConditionalGeneration",
        {
            "text_config.kv_source_layers": [0, 0, 0, 0],
            "text_config.no_rope_layers": [1, 1, 1, 1],
            "text_config.indexer_types": ["full", "full", "shared", "full"],
        },
    ),
    ("minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", {"layer_types": ["full_attention", *["minimax_m3_sparse"] * 3]}),
    (
        "minimax_m3_vl_text",
        "MiniMaxM3VLForCausalLM",
        {
            "layer_types": ...,
            "sparse_attention_config": {"sparse_attention_freq": [0, 1, 1, 0], "sparse_index_dim": 128},
        },
    ),
    ("deepseek_v4", "DeepseekV4ForCausalLM", {"compress_ratios": [0, 0, 4, 128], "layer_types": ...}),
    (
        "deepseek_v4",
        "DeepseekV4ForCausalLM",
        {"compress_rates": {"compressed_sparse_attention": 8, "heavily_compressed_attention": 16}},
    ),
    ("bamba", "BambaForCausalLM", {"attn_layer_indices": [0, 3], "mamba_expand": 3, "mamba_n_heads": 192}),
    ("falcon_h1", "FalconH1ForCausalLM", {"mamba_d_ssm": None, "mamba_d_head": 64}),
    (
        "nemotron_h",
        "NemotronHForCausalLM",
        {"hybrid_override_pattern": "M*E-M", "layers_block_type": ..., "num_hidden_layers": ...},
    ),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", {"layer_types": ["mamba", "attention", "mamba", "mamba"]}),
    (
        "qwen4_exp_text",
        "Qwen4ExpForCausalLM",
        {"ple_layer_ids": [1, 3], "eos_token_id": 1, "number_of_conv_states": ...},
    ),
    (
        "kimi_linear",
        "KimiLinearForCausalLM",
        {
            "layer_types": ...,
            "linear_attn_config": {
                "full_attn_layers": [2, 5],
                "kda_layers": [1, 3, 4, 6],
                "head_dim": 64,
                "num_heads": 8,
                "short_conv_kernel_size": 3,
            },
        },
    ),
    ("lfm2", "Lfm2ForCausalLM", {"full_attn_idxs": [1, 3], "layer_types": ..., "conv_L_cache": 5}),
    ("zaya", "ZayaForCausalLM", {"layer_types": ["hybrid", "hybrid_sliding"] * 2, "sliding_window": 10}),
    ("inkling_text", "InklingForCausalLM", {"local_layer_ids": [1, 2], "layer_types": ...}),
    ("hrm_text", "HrmTextForCausalLM", {"num_layers_per_stack": ..., "num_hidden_layers": 1, "H_cycles": 1}),
    ("xlnet", "XLNetLMHeadModel", {"mem_len": 7}),
    ("bart", "BartForCausalLM", {"is_encoder_decoder": False, "decoder_layers": 3, "encoder_layers": 3}),
    ("whisper", "WhisperForConditionalGeneration", {"decoder_layers": 2, "encoder_layers": 4}),
    ("bert", "BertLMHeadModel", {"is_decoder": False}),
    ("bert-generation", "BertGenerationDecoder", {"is_decoder": False}),
    ("roberta", "RobertaForCausalLM", {"is_decoder": ...}),
    ("falcon_mamba", "FalconMambaForCausalLM", {"intermediate_size": 512}),
    ("cohere2", "Cohere2ForCausalLM", {"head_dim": 96}),
    (
        "moonshine",
        "MoonshineForConditionalGeneration",
        {"encoder_num_attention_heads": 4, "encoder_num_key_value_heads": 4},
    ),
    ("pix2struct", "Pix2StructForConditionalGeneration", {"text_config.num_heads": 24, "text_config.d_kv": 32}),
    ("t5", "T5ForConditionalGeneration", {"num_decoder_layers": 2, "num_layers": 3}),
]
