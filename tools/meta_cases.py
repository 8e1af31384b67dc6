"""What single model types need so that ``meta_caches`` can run them: keys that their default configuration lacks, inputs beside tokens.

A class's default configuration is often no model: a mixture of experts without experts, attention without a layer of it. ``SET`` fills
that in. ``CANNOT`` names the types that cannot be run here at all, each with its reason.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tools.meta_caches import tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.meta_caches import Json, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How to run one model type.

    ``set`` are keys by path (``"text_config.head_dim"``; ``...`` removes one), ``module`` the part that generates where the wrapper only
    calls it, ``inputs`` further arguments of forward (``first_inputs`` with the
    prompt only), ``tokens`` makes the token ids where they have another shape, ``whole`` passes all
    tokens again at every step, ``section`` and ``class_name`` run the model of one section alone where the wrapper cannot be built here, ``device``
    and ``dtype`` are for code that the meta device or bfloat16 cannot run.
    """

    set: Json = field(default_factory=dict)
    module: str | None = None
    inputs: Callable[[Run], Json] | None = None
    first_inputs: Callable[[Run], Json] | None = None
    tokens: Callable[[Run, int], Any] | None = None
    whole: bool = False
    device: str = "meta"
    dtype: str = "bfloat16"
    section: str | None = None
    class_name: str | None = None


def patched(config: Json, changes: Json) -> Json:
    """``config`` with keys set by path; ``...`` removes one."""
    found = copy.deepcopy(config)
    for path, value in changes.items():
        *outer, last = path.split(".")
        section = found
        for name in outer:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        if value is ...:
            section.pop(last, None)
        else:
            section[last] = value
    return found


def _encoder_states(width: int) -> Callable[[Run], Json]:
    return lambda run: {"encoder_hidden_states": run.ones(run.batch, run.encoder_tokens, width)}


def _pooled(width: int) -> Callable[[Run], Json]:
    """What an image encoder hands over where the decoder reads its pooled output."""

    def given(run: Run) -> Json:
        pooled = run.ones(run.batch, run.encoder_tokens, width)
        return {"encoder_outputs": tools().outputs.BaseModelOutputWithPooling(pooler_output=pooled)}

    return given


def _codebooks(count: int) -> Callable[[Run, int], Any]:
    return lambda run, length: run.torch.ones(run.batch, length, count, dtype=run.torch.long, device=run.device)


def _rows(count: int) -> Callable[[Run, int], Any]:
    return lambda run, length: run.torch.ones(run.batch * count, length, dtype=run.torch.long, device=run.device)


_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}
_ROPES = {name: {"rope_type": "default", "rope_theta": 10000.0} for name in ("full_attention", "sliding_attention")}
_TINY_BART = {
    "d_model": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": 99,
}
_QSA = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 256,
    "indexer_budget": 16,
    "indexer_compress_ratio": 4,
}
_GEMMA3N = {
    "num_hidden_layers": 15,
    "num_kv_shared_layers": 5,
    "layer_types": ...,
    "intermediate_size": 512,
    "activation_sparsity_pattern": ...,
}
_EXPERTS = {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2}
_TYPES_OF_4 = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]

CASES: dict[str, Case] = {
    "aya_vision": Case(set={"vision_config.num_attention_heads": 16}),
    "blenderbot": Case(set={"encoder_layers": 4, "decoder_layers": 4}),
    "cohere_compass": Case(set={"text_config.rope_parameters": _ROPES}),
    "cohere_compass_text": Case(set={"rope_parameters": _ROPES}),
    "diffusion_gemma": Case(
        set={"text_config.num_experts": 8, "text_config.top_k_experts": 2, "text_config.moe_intermediate_size": 64}
    ),
    "granite4_vision": Case(set={"deepstack_layer_map": [[0, 0]], "downsample_rate": "4/8"}),
    "moonshine_streaming": Case(set={"num_key_value_heads": 8}),
    "qwen3_omni_moe": Case(
        set={"thinker_config.text_config.num_attention_heads": 32},
        section="thinker_config",
        class_name="Qwen3OmniMoeThinkerForConditionalGeneration",
    ),
    "fast_vlm": Case(section="text_config", class_name="Qwen2ForCausalLM"),
    "perception_lm": Case(section="text_config", class_name="LlamaForCausalLM"),
    "gemma3n": Case(
        set={f"text_config.{key}": value for key, value in _GEMMA3N.items()},
        section="text_config",
        class_name="Gemma3nForCausalLM",
    ),
    "xlnet": Case(
        set={"d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 64, "vocab_size": 99}, device="cpu", dtype="float32"
    ),
    "idefics": Case(
        inputs=lambda run: {
            "image_encoder_embeddings": run.ones(run.batch, 1, 5, 768),
            "image_attention_mask": run.ones(run.batch, run.length, 1).bool(),
        }
    ),
    "mllama": Case(
        first_inputs=lambda run: {
            "cross_attention_states": run.ones(
                run.batch, run.encoder_tokens, run.model.config.get_text_config().hidden_size
            )
        }
    ),
    "musicgen": Case(tokens=_rows(4)),
    "musicgen_melody": Case(tokens=_rows(4)),
    "nllb-moe": Case(set=_TINY_BART | {"num_experts": 4}, device="cpu", dtype="float32"),
    "prophetnet": Case(
        set={
            "hidden_size": 64,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "vocab_size": 99,
        },
        device="cpu",
        dtype="float32",
    ),
    "pp_formulanet": Case(inputs=_pooled(512)),
    "qwen4_exp": Case(set={f"text_config.{key}": value for key, value in _QSA.items()}),
    "qwen4_exp_text": Case(set=_QSA),
    "step3p7": Case(
        set={"text_config.sliding_window": 16, "text_config.layer_types": ["full_attention", "sliding_attention"] * 2}
    ),
    "switch_transformers": Case(
        set={"d_model": 64, "d_kv": 16, "d_ff": 64, "num_heads": 4, "num_experts": 4, "vocab_size": 99},
        device="cpu",
        dtype="float32",
    ),
    "zamba": Case(
        set={"num_hidden_layers": 6, "layers_block_type": ["linear_attention", "linear_attention", "hybrid"] * 2}
    ),
    "bamba": Case(set={"attn_layer_indices": [1]}),
    "bert": Case(set={"is_decoder": True}),
    "bert-generation": Case(set={"is_decoder": True}),
    "blip": Case(module="text_decoder", inputs=_encoder_states(768)),
    "blip-2": Case(module="language_model"),
    "camembert": Case(set={"is_decoder": True}),
    "chameleon": Case(set={"vocabulary_map": {"<image>": 4}}),
    "cpmant": Case(whole=True),
    "data2vec-text": Case(set={"is_decoder": True}),
    "dbrx": Case(set={"attn_config.rope_theta": 10000.0, "attn_config.kv_n_heads": 4, "attn_config.clip_qkv": 8}),
    "deepseek_ocr2": Case(set={"text_config.mlp_layer_types": ["dense"] * 4}),
    "deepseek_v2": Case(set=_EXPERTS | {"moe_intermediate_size": 1408}),
    "dia": Case(tokens=_codebooks(9)),
    "dots1": Case(set={**_EXPERTS, "max_window_layers": 2}),
    "electra": Case(set={"is_decoder": True}),
    "emu3": Case(set={"vocabulary_map": {"<image>": 4}}),
    "encoder-decoder": Case(
        set={
            "encoder": {"model_type": "bert", "num_hidden_layers": 2},
            "decoder": {
                "model_type": "bert",
                "num_hidden_layers": 3,
                "is_decoder": True,
                "add_cross_attention": True,
            },
        }
    ),
    "ernie": Case(set={"is_decoder": True}),
    "gemma3n_text": Case(set=_GEMMA3N),
    "glm46v": Case(set={"text_config.rope_parameters": _MROPE}),
    "glm4v": Case(set={"text_config.rope_parameters": _MROPE}),
    "glm4v_moe": Case(set={"text_config.rope_parameters": _MROPE, "text_config.num_attention_heads": 32}),
    "glmga": Case(set={"text_config.rope_parameters": _MROPE}),
    "granitemoehybrid": Case(set={"layer_types": _TYPES_OF_4}),
    "hrm_text": Case(set={"num_layers_per_stack": 2, "num_hidden_layers": 16}),
    "hunyuan_v1_dense": Case(set={"head_dim": 64}),
    "hunyuan_v1_moe": Case(set={"head_dim": 64}),
    "hunyuan_vl": Case(
        set={
            "text_config.head_dim": 128,
            "text_config.rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [16, 16, 16, 16],
            },
        }
    ),
    "instructblip": Case(module="language_model"),
    "instructblipvideo": Case(module="language_model"),
    "jetmoe": Case(set={"hidden_size": 64, "intermediate_size": 64, "kv_channels": 16}, device="cpu", dtype="float32"),
    "kosmos-2": Case(module="text_model"),
    "lfm2_moe": Case(set={"layer_types": ["conv", "conv", "full_attention", "conv"]}),
    "ministral": Case(set={"head_dim": 64}),
    "nemotron": Case(set={"num_key_value_heads": 8}),
    "qwen2_5_omni": Case(module="thinker"),
    "qwen3_omni_moe_thinker": Case(set={"text_config.num_attention_heads": 32}),
    "roberta": Case(set={"is_decoder": True}),
    "roberta-prelayernorm": Case(set={"is_decoder": True}),
    "roc_bert": Case(set={"is_decoder": True}),
    "big_bird": Case(set={"is_decoder": True}),
    "megatron-bert": Case(set={"is_decoder": True}),
    "rembert": Case(set={"is_decoder": True}),
    "roformer": Case(set={"is_decoder": True}),
    "xlstm": Case(set={"embedding_dim": ...}),
    "rwkv": Case(set={"attention_hidden_size": ..., "intermediate_size": ...}),
    "speech-encoder-decoder": Case(
        set={
            "encoder": {"model_type": "wav2vec2", "num_hidden_layers": 2},
            "decoder": {
                "model_type": "bert",
                "num_hidden_layers": 3,
                "is_decoder": True,
                "add_cross_attention": True,
            },
        }
    ),
    "vision-encoder-decoder": Case(
        set={
            "encoder": {"model_type": "vit", "num_hidden_layers": 2},
            "decoder": {"model_type": "trocr", "decoder_layers": 3, "is_decoder": True, "d_model": 768},
        }
    ),
    "xlm-roberta": Case(set={"is_decoder": True}),
    "xlm-roberta-xl": Case(set={"is_decoder": True}),
    "xmod": Case(set={"is_decoder": True, "default_language": "en_XX"}),
    "zamba2": Case(
        set={
            "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
            "num_hidden_layers": 4,
            "hybrid_layer_ids": ...,
        }
    ),
    "longcat_flash": Case(set={"n_routed_experts": 8, "zero_expert_num": 4, "moe_topk": 2}),
}


#: Model types that cannot be run here, and why. What their plan says, if anything, is read from the cited code.
CANNOT: dict[str, str] = {
    "blt": "patch boundaries follow the entropy of the text, which tensors without data do not have",
    "gemma4_assistant": "it drafts for another model and reads that model's cache; it keeps none of its own",
    "gemma4_unified_assistant": "it drafts for another model and reads that model's cache; it keeps none of its own",
    "kyutai_speech_to_text": "generate drives an audio codec window by window, with caches of its own",
    "pi0": "it denoises robot actions instead of generating tokens",
    "reformer": "it runs, but what it keeps jumps where the prompt passes a chunk, which a plan does not express",
    "voxtral_realtime": "every step needs audio features, and the audio encoder keeps a cache of its own",
}

#: Model types whose dimensions are not drawn, and why.
NOT_DRAWN: dict[str, str] = {
    "pix2struct": "its text model's hidden_size must be num_heads × d_kv and the image encoder's width at once, which draws never meet",
}


def case_for(model_type: str) -> Case:
    """What ``model_type`` needs; an empty case for most."""
    return CASES.get(model_type, Case())
