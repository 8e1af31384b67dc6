"""Repositories of every shape, small and whole: the files of each, as bytes by path."""

from __future__ import annotations

import json
from typing import Any

from small_repos import CONFIG, TENSORS
from weight_bytes import LEGACY_TORCH, Tensors, gguf, safetensors, torch

Files = dict[str, bytes]

MODEL: Tensors = {name: (dtype, shape) for name, dtype, shape in TENSORS}
"""The Llama of four layers of small_repos, in bf16."""

LLAMA_GGUF: dict[str, Any] = {
    "general.architecture": "llama", "general.file_type": 7, "llama.block_count": 1, "llama.context_length": 64, "llama.embedding_length": 32,
    "llama.feed_forward_length": 64, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
}  # fmt: skip
GGUF_BLOCK: Tensors = {
    "token_embd.weight": ("Q8_0", (128, 32)), "output_norm.weight": ("F32", (32,)), "blk.0.attn_q.weight": ("Q8_0", (32, 32)),
    "blk.0.attn_k.weight": ("Q8_0", (16, 32)), "blk.0.attn_v.weight": ("Q8_0", (16, 32)), "blk.0.attn_output.weight": ("Q8_0", (32, 32)),
    "blk.0.ffn_gate.weight": ("Q8_0", (64, 32)), "blk.0.ffn_up.weight": ("Q8_0", (64, 32)), "blk.0.ffn_down.weight": ("Q8_0", (32, 64)),
    "blk.0.attn_norm.weight": ("F32", (32,)), "blk.0.ffn_norm.weight": ("F32", (32,)),
}  # fmt: skip
GGUF_PARAMETERS = 128 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 3 * 32


def as_json(value: Any) -> bytes:
    """A JSON file."""
    return json.dumps(value).encode()


def cut(tensors: Tensors, name: str, count: int, write: Any, ending: str) -> Files:
    """Shards of these tensors, dealt one by one, and their index; ``name`` is that of the whole file, without its ending."""
    parts: list[Tensors] = [{} for _ in range(count)]
    for at, (tensor, described) in enumerate(tensors.items()):
        parts[at % count][tensor] = described
    names = [f"{name}-{number:05}-of-{count:05}.{ending}" for number in range(1, count + 1)]
    weight_map = {tensor: path for path, part in zip(names, parts, strict=True) for tensor in part}
    total = sum(_stored(tensors).values())
    files: Files = {path: write(part) for path, part in zip(names, parts, strict=True)}
    files[f"{name}.{ending}.index.json"] = as_json({"metadata": {"total_size": total}, "weight_map": weight_map})
    return files


def _stored(tensors: Tensors) -> dict[str, int]:
    widths = {"F32": 4, "F16": 2, "BF16": 2}
    sizes = {}
    for name, (dtype, shape) in tensors.items():
        count = 1
        for length in shape:
            count *= length
        sizes[name] = count * widths[dtype]
    return sizes


def below(folder: str, files: Files) -> Files:
    """The same files in a folder."""
    return {f"{folder}/{path}": content for path, content in files.items()}


UNET: Tensors = {"conv_in.weight": ("F32", (8, 4, 3, 3)), "mid_block.attentions.0.to_q.weight": ("F32", (16, 8))}
UNET_CONFIG = {
    "_class_name": "UNet2DConditionModel",
    "_diffusers_version": "0.30.0",
    "in_channels": 4,
    "sample_size": 64,
}
VAE: Tensors = {"decoder.conv_in.weight": ("F32", (8, 4, 3, 3))}
VAE_CONFIG = {"_class_name": "AutoencoderKL", "latent_channels": 4}
CLIP_CONFIG = {
    "architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "vocab_size": 10, "max_position_embeddings": 77, "torch_dtype": "float16",
}  # fmt: skip
CLIP: Tensors = {
    "text_model.embeddings.token_embedding.weight": ("F16", (10, 8)),
    "text_model.final_layer_norm.weight": ("F16", (8,)),
}
PIPELINE_PARAMETERS = {"text_encoder": 88, "unet": 8 * 36 + 128, "vae": 8 * 36}


def _halved(tensors: Tensors) -> Tensors:
    return {name: ("F16", shape) for name, (_, shape) in tensors.items()}


def diffusers(*, variants: bool = True, only_variant: bool = False) -> Files:
    """A Stable Diffusion of three parts, with a scheduler and a tokenizer that have no weights."""
    files: Files = {
        "model_index.json": as_json(
            {"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30.0", "feature_extractor": [None, None],
             "scheduler": ["diffusers", "PNDMScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
             "tokenizer": ["transformers", "CLIPTokenizer"], "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]}
        ),
        "scheduler/scheduler_config.json": as_json({"_class_name": "PNDMScheduler"}),
        "tokenizer/tokenizer_config.json": as_json({}),
        "text_encoder/config.json": as_json(CLIP_CONFIG),
        "unet/config.json": as_json(UNET_CONFIG),
        "vae/config.json": as_json(VAE_CONFIG),
    }  # fmt: skip
    for folder, name, tensors in (
        ("unet", "diffusion_pytorch_model", UNET),
        ("vae", "diffusion_pytorch_model", VAE),
        ("text_encoder", "model", CLIP),
    ):
        if not only_variant:
            files[f"{folder}/{name}.safetensors"] = safetensors(tensors)
        if variants or only_variant:
            files[f"{folder}/{name}.fp16.safetensors"] = safetensors(_halved(tensors))
    return files


BERT_CONFIG = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "vocab_size": 10, "max_position_embeddings": 16, "type_vocab_size": 2, "torch_dtype": "float32",
}  # fmt: skip
BERT: Tensors = {
    "embeddings.word_embeddings.weight": ("F32", (10, 8)),
    "encoder.layer.0.attention.self.query.weight": ("F32", (8, 8)),
}
DENSE: Tensors = {"linear.weight": ("F32", (4, 8)), "linear.bias": ("F32", (4,))}


def sentence_transformers(*, dense: str | None = "safetensors") -> Files:
    """A transformer, a pooling, and a Dense module in one of the two formats, or none."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    files: Files = {
        "config.json": as_json(BERT_CONFIG),
        "model.safetensors": safetensors(BERT),
        "pytorch_model.bin": torch(BERT),
        "1_Pooling/config.json": as_json({"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}),
        "onnx/model.onnx": bytes(100),
    }
    if dense is not None:
        modules.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
        files["2_Dense/config.json"] = as_json({"in_features": 8, "out_features": 4, "bias": True})
        files |= (
            {"2_Dense/model.safetensors": safetensors(DENSE)}
            if dense == "safetensors"
            else {"2_Dense/pytorch_model.bin": torch(DENSE)}
        )
    return files | {"modules.json": as_json(modules)}


ADAPTER: Tensors = {
    f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_{part}.weight": ("F32", shape)
    for layer in range(4)
    for name, rows in (("q_proj", 32), ("v_proj", 16))
    for part, shape in (("A", (8, 32)), ("B", (rows, 8)))
}
ADAPTER_PARAMETERS = 4 * (8 * (32 + 32) + 8 * (32 + 16))


def adapter(
    base: str | None = "org/base", tensors: Tensors = ADAPTER, *, ending: str = "safetensors", **changes: Any
) -> Files:
    """A LoRA of rank 8 on the Llama's queries and values."""
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "r": 8,
        "target_modules": ["q_proj", "v_proj"],
        "modules_to_save": None,
        **changes,
    }
    write = safetensors if ending == "safetensors" else torch
    return {"adapter_config.json": as_json(config), f"adapter_model.{ending}": write(tensors)}


BASE: Files = {"config.json": as_json(CONFIG), "model.safetensors": safetensors(MODEL)}

TIMM: Files = {
    "config.json": as_json({"architecture": "vit_tiny", "num_classes": 10, "num_features": 8, "global_pool": "token",
                            "pretrained_cfg": {"tag": "test", "input_size": [3, 32, 32]}}),
    "model.safetensors": safetensors({"patch_embed.proj.weight": ("F32", (8, 3, 4, 4)), "head.weight": ("F32", (10, 8)), "head.bias": ("F32", (10,))}),
    "pytorch_model.bin": bytes(10),
}  # fmt: skip

SHAPES: dict[str, Files] = {
    "one file": BASE,
    "twins": {**BASE, "pytorch_model.bin": torch(MODEL), "tf_model.h5": bytes(50), "onnx/model.onnx": bytes(70), "m-Q8_0.gguf": gguf(LLAMA_GGUF, GGUF_BLOCK)},
    "shards": {"config.json": BASE["config.json"], **cut(MODEL, "model", 3, safetensors, "safetensors")},
    "variant": {"config.json": BASE["config.json"], "model.fp16.safetensors": safetensors(MODEL)},
    "consolidated": {"config.json": BASE["config.json"], "consolidated.safetensors": safetensors(MODEL)},
    "subfolder": below("checkpoint-10", BASE),
    "config above": {"config.json": BASE["config.json"], "weights/model.safetensors": BASE["model.safetensors"]},
    "bin": {"config.json": BASE["config.json"], "pytorch_model.bin": torch(MODEL)},
    "bin shards": {"config.json": BASE["config.json"], **cut(MODEL, "pytorch_model", 2, torch, "bin")},
    "pt": {"model.pt": torch(MODEL, under="state_dict")},
    "old pickle": {"config.json": BASE["config.json"], "pytorch_model.bin": LEGACY_TORCH},
    "gguf": {f"m-{quant}.gguf": gguf(LLAMA_GGUF, GGUF_BLOCK) for quant in ("Q2_K", "Q4_K_M", "Q8_0")} | {"mmproj-m-F16.gguf": gguf({"general.architecture": "clip"}, {})},
    "gguf shards": {
        "Q8_0/m-Q8_0-00001-of-00002.gguf": gguf({**LLAMA_GGUF, "split.no": 0, "split.count": 2}, dict(list(GGUF_BLOCK.items())[:4])),
        "Q8_0/m-Q8_0-00002-of-00002.gguf": gguf({"split.no": 1, "split.count": 2}, dict(list(GGUF_BLOCK.items())[4:])),
    },
    "pipeline": diffusers(),
    "pipeline of variants": diffusers(only_variant=True),
    "modules": sentence_transformers(),
    "timm": TIMM,
    "broken shard": {"config.json": BASE["config.json"], **cut(MODEL, "model", 3, safetensors, "safetensors"), "model-00002-of-00003.safetensors": b"short"},
    "broken gguf": {"m.gguf": b"GGUF\x03\0\0\0" + b"\xff" * 100},
    "config only": {"config.json": BASE["config.json"]},
    "onnx only": {"config.json": BASE["config.json"], "onnx/model.onnx": bytes(70)},
}  # fmt: skip
"""What users point the tool at."""
