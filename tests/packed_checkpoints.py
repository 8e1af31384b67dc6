"""Checkpoints whose parameter counts the Hub's own code was tested on, rebuilt tensor by tensor from their configs and their formats' rules.

Sizes of the models: model_configs/ of github.com/ai-dynamo/aiconfigurator at 095f58a51c4ca8e61b66ec108d86f223f8d559ce, unless a builder says otherwise.
Layouts: the sources in hubaudit/data/quantizers.toml.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING, Any

from hubaudit.types import RepoSnapshot, TensorInfo, WeightFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Linear = Callable[[str, int, int], Iterator[TensorInfo]]

BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16}
#: Golden figures of the Hub's own code.
SPEC = "https://github.com/huggingface/huggingface.js/blob/fe42e68017ffc76d09922ea8f9b38a6964345710/packages/hub/src/lib/parse-safetensors-metadata.spec.ts"


def tensor(name: str, dtype: str, *shape: int) -> TensorInfo:
    """A tensor that fills its bytes."""
    return TensorInfo(name, dtype, shape, prod(shape) * BITS.get(dtype, 8) // 8)


def snapshot(
    tensors: Iterable[TensorInfo],
    configs: dict[str, dict[str, Any]] | dict[str, Any],
    metadata: dict[str, Any] | None = None,
) -> RepoSnapshot:
    """A repository with one file of these tensors; ``configs`` by file name, or the config.json alone."""
    named = configs if all(name.endswith(".json") for name in configs) else {"config.json": configs}
    file = WeightFile(
        path="model.safetensors", size_bytes=None, format="safetensors", tensors=tuple(tensors), metadata=metadata or {}
    )
    return RepoSnapshot(repo_id="made/up", revision=None, commit=None, source="local", configs=named, weights=(file,))


# --- formats: one linear layer, `outputs` by `inputs` -----------------------------------------------------------------------


def plain(dtype: str) -> Linear:
    """A weight as it is."""

    def linear(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
        yield tensor(f"{name}.weight", dtype, outputs, inputs)

    return linear


def nf4(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
    """NF4 of bitsandbytes with double quantization: a byte of absmax for 64 values, nested statistics for 256 of those."""
    blocks = ceil(outputs * inputs / 64)
    yield tensor(f"{name}.weight", "U8", ceil(outputs * inputs / 2), 1)
    yield tensor(f"{name}.weight.absmax", "U8", blocks)
    yield tensor(f"{name}.weight.quant_map", "F32", 16)
    yield tensor(f"{name}.weight.nested_absmax", "F32", ceil(blocks / 256))
    yield tensor(f"{name}.weight.nested_quant_map", "F32", 256)
    yield tensor(f"{name}.weight.quant_state.bitsandbytes__nf4", "U8", 170)


def gptq(bits: int, group: int, *, bias: bool = False) -> Linear:
    """GPTQ: values packed into int32 down the inputs, zeros along the outputs."""

    def linear(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
        groups = ceil(inputs / group) if group > 0 else 1
        yield tensor(f"{name}.qweight", "I32", ceil(inputs * bits / 32), outputs)
        yield tensor(f"{name}.qzeros", "I32", groups, ceil(outputs * bits / 32))
        yield tensor(f"{name}.scales", "F16", groups, outputs)
        yield tensor(f"{name}.g_idx", "I32", inputs)
        if bias:
            yield tensor(f"{name}.bias", "F16", outputs)

    return linear


def awq(bits: int, group: int) -> Linear:
    """AWQ ("gemm"): values packed into int32 along the outputs."""

    def linear(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
        yield tensor(f"{name}.qweight", "I32", inputs, outputs * bits // 32)
        yield tensor(f"{name}.qzeros", "I32", inputs // group, outputs * bits // 32)
        yield tensor(f"{name}.scales", "F16", inputs // group, outputs)

    return linear


def int_packed(bits: int, group: int, scale_dtype: str = "BF16", *, g_idx: bool = False) -> Linear:
    """compressed-tensors "pack-quantized": values packed into int32 along the inputs, the shape stored beside them."""

    def linear(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
        yield tensor(f"{name}.weight_packed", "I32", outputs, ceil(inputs * bits / 32))
        yield tensor(f"{name}.weight_scale", scale_dtype, outputs, ceil(inputs / group) if group > 0 else 1)
        yield tensor(f"{name}.weight_shape", "I64", 2)
        if g_idx:
            yield tensor(f"{name}.weight_g_idx", "I32", inputs)

    return linear


def mxfp4_packed(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
    """compressed-tensors "mxfp4-pack-quantized": two values a byte, an exponent byte for 32."""
    yield tensor(f"{name}.weight_packed", "U8", outputs, inputs // 2)
    yield tensor(f"{name}.weight_scale", "U8", outputs, inputs // 32)


def nvfp4_packed(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
    """compressed-tensors "nvfp4-pack-quantized": two values a byte, an FP8 scale for 16, a float32 one for all."""
    yield tensor(f"{name}.weight_packed", "U8", outputs, inputs // 2)
    yield tensor(f"{name}.weight_scale", "F8_E4M3", outputs, inputs // 16)
    yield tensor(f"{name}.weight_global_scale", "F32", 1)
    yield tensor(f"{name}.input_global_scale", "F32", 1)


def modelopt_nvfp4(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
    """Model-Optimizer's NVFP4: the same under the weight's own name."""
    yield tensor(f"{name}.weight", "U8", outputs, inputs // 2)
    yield tensor(f"{name}.weight_scale", "F8_E4M3", outputs, inputs // 16)
    yield tensor(f"{name}.weight_scale_2", "F32")
    yield tensor(f"{name}.input_scale", "F32")


def mlx(bits: int, group: int, mode: str = "affine") -> Linear:
    """MLX: values packed into uint32 along the inputs, a scale and, in the affine mode, an offset for each group."""

    def linear(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
        yield tensor(f"{name}.weight", "U32", outputs, inputs * bits // 32)
        yield tensor(f"{name}.scales", "BF16" if mode == "affine" else "U8", outputs, inputs // group)
        if mode == "affine":
            yield tensor(f"{name}.biases", "BF16", outputs, inputs // group)

    return linear


# --- models ----------------------------------------------------------------------------------------------------------------


def llama(
    linear: Linear, *, layers: int, hidden: int, inner: int, kv_width: int, vocab: int, dtype: str
) -> Iterator[TensorInfo]:
    """A Llama with its linear layers, but the head, in one format (meta-llama's config.json of each size)."""
    yield tensor("model.embed_tokens.weight", dtype, vocab, hidden)
    for layer in range(layers):
        stem = f"model.layers.{layer}"
        for name, outputs, inputs in (
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv_width, hidden),
            ("self_attn.v_proj", kv_width, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):
            yield from linear(f"{stem}.{name}", outputs, inputs)
        yield tensor(f"{stem}.input_layernorm.weight", dtype, hidden)
        yield tensor(f"{stem}.post_attention_layernorm.weight", dtype, hidden)
    yield tensor("model.norm.weight", dtype, hidden)
    yield tensor("lm_head.weight", dtype, vocab, hidden)


LLAMA_8B: dict[str, Any] = {"layers": 32, "hidden": 4096, "inner": 14336, "kv_width": 1024, "vocab": 128256}
LLAMA_70B: dict[str, Any] = {"layers": 80, "hidden": 8192, "inner": 28672, "kv_width": 1024, "vocab": 128256}


def gpt_oss(layers: int, experts: int) -> Iterator[TensorInfo]:
    """gpt-oss: attention with biases and sinks, all experts of a layer in one MXFP4 tensor (openai/gpt-oss-20b, -120b config.json)."""
    hidden, queries, keys, inner = 2880, 64 * 64, 8 * 64, 2880
    yield tensor("model.embed_tokens.weight", "BF16", 201088, hidden)
    for layer in range(layers):
        stem = f"model.layers.{layer}"
        for name, outputs, inputs in (
            ("q", queries, hidden),
            ("k", keys, hidden),
            ("v", keys, hidden),
            ("o", hidden, queries),
        ):
            yield tensor(f"{stem}.self_attn.{name}_proj.weight", "BF16", outputs, inputs)
            yield tensor(f"{stem}.self_attn.{name}_proj.bias", "BF16", outputs)
        yield tensor(f"{stem}.self_attn.sinks", "BF16", 64)
        yield tensor(f"{stem}.mlp.router.weight", "BF16", experts, hidden)
        yield tensor(f"{stem}.mlp.router.bias", "BF16", experts)
        for name, rows in (("gate_up_proj", 2 * inner), ("down_proj", hidden)):
            yield tensor(f"{stem}.mlp.experts.{name}_blocks", "U8", experts, rows, hidden // 32, 16)
            yield tensor(f"{stem}.mlp.experts.{name}_scales", "U8", experts, rows, hidden // 32)
            yield tensor(f"{stem}.mlp.experts.{name}_bias", "BF16", experts, rows)
        yield tensor(f"{stem}.input_layernorm.weight", "BF16", hidden)
        yield tensor(f"{stem}.post_attention_layernorm.weight", "BF16", hidden)
    yield tensor("model.norm.weight", "BF16", hidden)
    yield tensor("lm_head.weight", "BF16", 201088, hidden)


def _many(stem: str, dtype: str, shapes: dict[str, tuple[int, ...]]) -> Iterator[TensorInfo]:
    for name, shape in shapes.items():
        yield tensor(f"{stem}{name}", dtype, *shape)


def _experts(
    stem: str, count: int, outer: int, inner: int, linear: Linear, names: tuple[str, str, str]
) -> Iterator[TensorInfo]:
    """Routed experts one by one: two matrices into the inner width, one back."""
    into, also_into, back = names
    for expert in range(count):
        yield from linear(f"{stem}.{expert}.{into}", inner, outer)
        yield from linear(f"{stem}.{expert}.{also_into}", inner, outer)
        yield from linear(f"{stem}.{expert}.{back}", outer, inner)


_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def _mla(heads: int) -> dict[str, tuple[int, ...]]:
    """DeepSeek-V3's latent attention with hidden size 7168 (deepseek_v3 in transformers 5.23.0)."""
    return {
        "q_a_proj.weight": (1536, 7168),
        "q_a_layernorm.weight": (1536,),
        "q_b_proj.weight": (heads * 192, 1536),
        "kv_a_proj_with_mqa.weight": (576, 7168),
        "kv_a_layernorm.weight": (512,),
        "kv_b_proj.weight": (heads * 256, 512),
        "o_proj.weight": (7168, heads * 128),
    }


def _ends(prefix: str, vocab: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}model.embed_tokens.weight": (vocab, 7168),
        f"{prefix}model.norm.weight": (7168,),
        f"{prefix}lm_head.weight": (vocab, 7168),
    }


def kimi_k2_5() -> Iterator[TensorInfo]:
    """Kimi-K2.5: DeepSeek-V3's blocks with 384 experts in int4, and MoonViT with biases (transformers 5.23.0, kimi_k25)."""
    yield from _many("", "BF16", _ends("language_model.", 163840))
    for layer in range(61):
        stem = f"language_model.model.layers.{layer}."
        yield from _many(f"{stem}self_attn.", "BF16", _mla(heads=64))
        yield from _many(stem, "BF16", {"input_layernorm.weight": (7168,), "post_attention_layernorm.weight": (7168,)})
        if layer == 0:
            yield from _many(
                f"{stem}mlp.",
                "BF16",
                {"gate_proj.weight": (18432, 7168), "up_proj.weight": (18432, 7168), "down_proj.weight": (7168, 18432)},
            )
            continue
        yield from _many(
            f"{stem}mlp.shared_experts.",
            "BF16",
            {"gate_proj.weight": (2048, 7168), "up_proj.weight": (2048, 7168), "down_proj.weight": (7168, 2048)},
        )
        yield tensor(f"{stem}mlp.gate.weight", "BF16", 384, 7168)
        yield tensor(f"{stem}mlp.gate.e_score_correction_bias", "F32", 384)
        yield from _experts(f"{stem}mlp.experts", 384, 7168, 2048, int_packed(4, 32), _PROJECTIONS)
    for block in range(27):
        yield from _many(f"vision_tower.encoder.blocks.{block}.", "BF16", {
            "wqkv.weight": (3456, 1152), "wqkv.bias": (3456,), "wo.weight": (1152, 1152), "wo.bias": (1152,),
            "mlp.fc0.weight": (4304, 1152), "mlp.fc0.bias": (4304,), "mlp.fc1.weight": (1152, 4304), "mlp.fc1.bias": (1152,),
            "norm0.weight": (1152,), "norm0.bias": (1152,), "norm1.weight": (1152,), "norm1.bias": (1152,),
        })  # fmt: skip
    yield from _many("", "BF16", {
        "vision_tower.patch_embed.proj.weight": (1152, 3, 14, 14), "vision_tower.patch_embed.proj.bias": (1152,),
        "vision_tower.patch_embed.pos_emb.weight": (64, 64, 1152),
        "vision_tower.encoder.final_layernorm.weight": (1152,), "vision_tower.encoder.final_layernorm.bias": (1152,),
        "mm_projector.pre_norm.weight": (1152,), "mm_projector.pre_norm.bias": (1152,),
        "mm_projector.proj.0.weight": (4608, 4608), "mm_projector.proj.0.bias": (4608,),
        "mm_projector.proj.2.weight": (7168, 4608), "mm_projector.proj.2.bias": (7168,),
    })  # fmt: skip


def kimi_k3() -> Iterator[TensorInfo]:
    """Kimi-K3: 69 linear (KDA) and 24 latent attention layers, 896 latent experts in MXFP4, MoonViT without biases.

    Names and the layers' parts: github.com/ggml-org/llama.cpp/pull/26185 (conversion/kimi_k3.py). A_log is stored with 128 entries for 96 heads.
    """
    width = 96 * 128
    yield from _many("", "BF16", _ends("language_model.", 163840))
    yield from _many(
        "language_model.model.",
        "BF16",
        {"output_attn_res_norm.weight": (7168,), "output_attn_res_proj.weight": (1, 7168)},
    )
    for layer in range(93):
        stem = f"language_model.model.layers.{layer}."
        yield from _many(stem, "BF16", {
            "input_layernorm.weight": (7168,), "post_attention_layernorm.weight": (7168,),
            "self_attention_res_norm.weight": (7168,), "self_attention_res_proj.weight": (1, 7168),
            "mlp_res_norm.weight": (7168,), "mlp_res_proj.weight": (1, 7168),
        })  # fmt: skip
        if (layer + 1) % 4 == 0 or layer == 92:
            yield from _many(f"{stem}self_attn.", "BF16", {**_mla(heads=96), "g_proj.weight": (width, 7168)})
        else:
            yield from _many(f"{stem}self_attn.", "BF16", {
                "q_proj.weight": (width, 7168), "k_proj.weight": (width, 7168), "v_proj.weight": (width, 7168), "g_proj.weight": (width, 7168),
                "f_a_proj.weight": (128, 7168), "f_b_proj.weight": (width, 128), "b_proj.weight": (96, 7168), "o_proj.weight": (7168, width),
            })  # fmt: skip
            yield from _many(f"{stem}self_attn.", "F32", {
                "q_conv1d.weight": (width, 1, 4), "k_conv1d.weight": (width, 1, 4), "v_conv1d.weight": (width, 1, 4),
                "A_log": (128,), "dt_bias": (width,), "o_norm.weight": (128,),
            })  # fmt: skip
        if layer == 0:
            yield from _many(
                f"{stem}mlp.",
                "BF16",
                {"gate_proj.weight": (33792, 7168), "up_proj.weight": (33792, 7168), "down_proj.weight": (7168, 33792)},
            )
            continue
        moe = f"{stem}block_sparse_moe."
        yield from _many(moe, "BF16", {
            "gate.weight": (896, 7168), "routed_expert_norm.weight": (3584,), "routed_expert_down_proj.weight": (3584, 7168), "routed_expert_up_proj.weight": (7168, 3584),
            "shared_experts.gate_proj.weight": (6144, 7168), "shared_experts.up_proj.weight": (6144, 7168), "shared_experts.down_proj.weight": (7168, 6144),
        })  # fmt: skip
        yield tensor(f"{moe}gate.e_score_correction_bias", "F32", 896)
        yield from _experts(f"{moe}experts", 896, 3584, 3072, mxfp4_packed, _PROJECTIONS)
    for block in range(27):
        yield from _many(f"vision_tower.encoder.blocks.{block}.", "BF16", {
            "wqkv.weight": (4608, 1024), "wo.weight": (1024, 1536), "mlp.fc0.weight": (4096, 1024), "mlp.fc1.weight": (1024, 4096),
            "norm0.weight": (1024,), "norm1.weight": (1024,),
        })  # fmt: skip
    yield from _many("", "BF16", {
        "vision_tower.patch_embed.proj.weight": (1024, 3, 14, 14), "vision_tower.patch_embed.pos_emb.weight": (64, 64, 1024),
        "vision_tower.encoder.final_layernorm.weight": (1024,), "mm_projector.proj.0.weight": (4096, 4096),
        "mm_projector.proj.2.weight": (7168, 4096), "mm_projector.post_norm.weight": (7168,),
    })  # fmt: skip


def deepseek_v4_pro() -> Iterator[TensorInfo]:
    """DeepSeek-V4-Pro: FP8 with E8M0 scales for tiles of 128, experts in FP4 with such a scale for 32, one multi-token-prediction block.

    Names and shapes: transformers 5.23.0, deepseek_v4 and its conversion_mapping.py; the block `mtp.0` after github.com/deepseek-ai's inference code.
    """
    yield from _many(
        "", "BF16", {"embed.weight": (129280, 7168), "norm.weight": (7168,), "head.weight": (129280, 7168)}
    )
    yield from _many("", "F32", {"hc_head_fn": (4, 28672), "hc_head_base": (4,), "hc_head_scale": (1,)})
    for layer in range(62):
        stem = f"layers.{layer}." if layer < 61 else "mtp.0."
        yield from _v4_block(stem, layer)
    yield from _fp8("mtp.0.e_proj", 7168, 7168)
    yield from _fp8("mtp.0.h_proj", 7168, 7168)
    yield from _many("mtp.0.", "BF16", {"enorm.weight": (7168,), "hnorm.weight": (7168,), "norm.weight": (7168,)})
    yield from _many("mtp.0.", "F32", {"hc_head_fn": (4, 28672), "hc_head_base": (4,), "hc_head_scale": (1,)})


def _v4_block(stem: str, layer: int) -> Iterator[TensorInfo]:
    for name, outputs, inputs in (
        ("attn.wq_a", 1536, 7168), ("attn.wq_b", 65536, 1536), ("attn.wkv", 512, 7168), ("attn.wo_a", 16384, 4096), ("attn.wo_b", 7168, 16384),
        ("ffn.shared_experts.w1", 3072, 7168), ("ffn.shared_experts.w2", 7168, 3072), ("ffn.shared_experts.w3", 3072, 7168),
    ):  # fmt: skip
        yield from _fp8(f"{stem}{name}", outputs, inputs)
    yield from _many(stem, "BF16", {
        "attn_norm.weight": (7168,), "ffn_norm.weight": (7168,), "attn.q_norm.weight": (1536,), "attn.kv_norm.weight": (512,), "ffn.gate.weight": (384, 7168),
    })  # fmt: skip
    yield from _many(stem, "F32", {
        "attn.attn_sink": (128,), "hc_attn_fn": (24, 28672), "hc_attn_base": (24,), "hc_attn_scale": (3,),
        "hc_ffn_fn": (24, 28672), "hc_ffn_base": (24,), "hc_ffn_scale": (3,),
    })  # fmt: skip
    if layer < 3:
        yield tensor(f"{stem}ffn.gate.tid2eid", "I64", 129280, 6)
    else:
        yield tensor(f"{stem}ffn.gate.bias", "F32", 384)
    if layer < 61:
        yield from _v4_compressor(f"{stem}attn.", every=4 if layer >= 2 and layer % 2 == 0 else 128)
    yield from _experts(f"{stem}ffn.experts", 384, 7168, 3072, _fp4_in_i8, ("w1", "w3", "w2"))


def _v4_compressor(stem: str, every: int) -> Iterator[TensorInfo]:
    """Entries for every 128 tokens, or overlapping ones for every 4 (twice the width) with an indexer."""
    width = 512 if every == 128 else 1024
    yield from _many(
        f"{stem}compressor.",
        "BF16",
        {"wkv.weight": (width, 7168), "wgate.weight": (width, 7168), "norm.weight": (512,)},
    )
    yield tensor(f"{stem}compressor.ape", "F32", every, width)
    if every == 4:
        yield from _many(f"{stem}indexer.", "BF16", {
            "compressor.wkv.weight": (256, 7168), "compressor.wgate.weight": (256, 7168), "compressor.norm.weight": (128,), "weights_proj.weight": (64, 7168),
        })  # fmt: skip
        yield tensor(f"{stem}indexer.compressor.ape", "F32", 4, 256)
        yield from _fp8(f"{stem}indexer.wq_b", 8192, 1536)


def _fp8(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
    yield tensor(f"{name}.weight", "F8_E4M3", outputs, inputs)
    yield tensor(f"{name}.scale", "F8_E8M0", ceil(outputs / 128), ceil(inputs / 128))


def _fp4_in_i8(name: str, outputs: int, inputs: int) -> Iterator[TensorInfo]:
    yield tensor(f"{name}.weight", "I8", outputs, inputs // 2)
    yield tensor(f"{name}.scale", "F8_E8M0", outputs, inputs // 32)
