"""config.json: of any kind, or a real one changed in a few places, through facts, estimate, findings and output."""

from __future__ import annotations

import gzip
import json
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzz.choices import Choices, changed, value
from fuzz.registry import target
from fuzz.reports import audited

from hubaudit.data import table
from hubaudit.errors import CannotAuditError, MalformedFileError
from hubaudit.facts.layer_plan_rows import all_rows
from hubaudit.facts.skeleton import described_model_types, usual_class
from hubaudit.formats.documents import parse_object
from hubaudit.types import Hardware, RepoSnapshot, TensorInfo, WeightFile, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALL = sorted((Path(__file__).resolve().parents[2] / "fixtures" / "bundles").glob("*.json.gz"))
BUNDLES = [path for path in _ALL if path.stat().st_size < 40_000]
_SECTIONS = (
    "text_config",
    "vision_config",
    "decoder",
    "encoder",
    "audio_config",
    "quantization_config",
    "rope_scaling",
)
_QUANTIZERS = (
    "gptq",
    "awq",
    "bitsandbytes",
    "compressed-tensors",
    "fp8",
    "mxfp4",
    "torchao",
    "hqq",
    "quanto",
    "modelopt",
    "nonsense",
)
WORKLOADS = (
    *(Workload(mode=mode) for mode in ("infer", "kv", "train")),
    *(Workload(mode=mode, runtime=runtime) for mode in ("infer", "kv") for runtime in ("vllm", "llama.cpp")),
    *(Workload(quant=quant) for quant in ("int8", "nf4", "fp4", "hqq_4bit", "fp8")),
    *(Workload(cache=cache) for cache in ("static", "offloaded", "offloaded_static", "quantized")),
    Workload(runtime="vllm", kv_dtype="fp8", cache="paged_full", draft_tokens=3),
    Workload(runtime="llama.cpp", kv_dtype="q8_0", cache="swa_full"),
    Workload(tp=2), Workload(pp=3), Workload(tp=2, ep=2, runtime="vllm"), Workload(runtime="vllm", tp=8, pp=2),
    Workload(batch_size=64, prompt_tokens=100_000, new_tokens=1, attention="eager"),
    Workload(mode="train", lora=16, quant="nf4", gradient_checkpointing="full"),
    Workload(mode="train", lora=8, lora_targets="all-linear", lora_variant="dora"),
    Workload(mode="train", zero=3, gpus=8, offload="optimizer"), Workload(mode="train", fsdp=2, gpus=4),
    Workload(mode="train", optimizer="adafactor", recipe="bf16-mixed", attention="eager"),
    Workload(mode="train", optimizer="adamw_8bit", sequence_tokens=1, batch_size=3),
    Workload(mode="train", tp=2, gpus=2), Workload(mode="train", pp=2, gpus=2),
)  # fmt: skip
HARDWARE = (Hardware(name="card", usable_bytes=24 * 2**30),)
_TENSOR_NAMES = (
    "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
    "model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.gate_proj.qweight",
    "model.layers.0.mlp.gate_proj.qzeros", "model.layers.0.mlp.gate_proj.scales", "model.layers.0.mlp.gate_proj.g_idx",
    "model.layers.0.mlp.gate_proj.weight_scale", "model.layers.0.mlp.gate_proj.weight.absmax", "model.layers.0.mlp.gate_proj.SCB",
    "model.layers.0.mlp.experts.gate_up_proj_blocks", "model.layers.0.mlp.experts.gate_up_proj_scales", "model.layers.99999999999999999999.w",
    "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "transformer.h.0.attn.c_attn.weight", "\x1b[2J=cmd|<b>", "",
)  # fmt: skip
_DTYPES = {"BF16": 16, "F32": 32, "U8": 8, "I32": 32, "I8": 8, "F8_E4M3": 8, "F4": 4}
_DIMENSIONS = (0, 1, 2, 8, 16, 32, 64, 128, 4096, 151_936, 2**31, 2**53)


@cache
def real_configs() -> tuple[dict[str, Any], ...]:
    """The configs of the fixtures that are soon read."""
    return tuple(json.loads(gzip.decompress(path.read_bytes()))["configs"]["config.json"] for path in BUNDLES)


@cache
def model_types() -> tuple[str, ...]:
    """Every model type that a table has a row for."""
    rows = table("config_defaults.json")["model_types"]
    return tuple(sorted({*rows, *all_rows(), *described_model_types()}))


@cache
def keys() -> tuple[str, ...]:
    """Keys that mean something to somebody."""
    named = {key for config in real_configs() for key in config}
    for row in table("config_defaults.json")["model_types"].values():
        named.update(row["defaults"])
    named.update(
        (
            "per_layer_config",
            "block_types",
            "layer_types",
            "",
            "quant_method",
            "bits",
            "group_size",
            "\x1b[2J",
            "\ud800",
        )
    )
    return tuple(sorted(named))


def config_from(choices: Choices) -> Any:
    """A config: anything at all, a real one with changes, or what a model type's class has with changes."""
    kind = choices.below(8)
    if kind == 0:
        return value(choices, keys())
    if kind < 4:
        return changed(choices, choices.pick(real_configs()), keys())
    kept = choices.pick(model_types())
    row = table("config_defaults.json")["model_types"].get(kept, {"defaults": {}})
    base: dict[str, Any] = {"model_type": kept, **(row["defaults"] if kind < 7 else {})}
    if kept in described_model_types() and choices.below(2):
        base["architectures"] = [usual_class(kept)]
    if choices.below(4) == 0:
        base["quantization_config"] = {"quant_method": choices.pick(_QUANTIZERS), "bits": 4, "group_size": 128}
    if choices.below(4) == 0:
        base[choices.pick(_SECTIONS)] = changed(choices, choices.pick(real_configs()), keys())
    return changed(choices, base, keys())


def weights_from(choices: Choices) -> tuple[WeightFile, ...]:
    """No weights, or a file of some tensors that a header could hold."""
    tensors = []
    for name in _TENSOR_NAMES[: choices.below(len(_TENSOR_NAMES))] if choices.below(2) else ():
        shape = tuple(choices.pick(_DIMENSIONS) for _ in range(choices.below(4)))
        dtype = choices.pick(tuple(_DTYPES))
        if prod(shape) * _DTYPES[dtype] % 8 == 0:
            tensors.append(TensorInfo(name, dtype, shape, prod(shape) * _DTYPES[dtype] // 8))
    if not tensors:
        return ()
    return (WeightFile(path="model.safetensors", size_bytes=None, format="safetensors", tensors=tuple(tensors)),)


def _choices() -> Iterator[bytes]:
    for kind in range(8):
        for model in (0, 7, 99, 200):
            yield bytes((kind, model, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, model, kind))


@target("config-audit", allowed=(CannotAuditError,), seeds=_choices)
def any_config(data: bytes) -> None:
    """The config made of choices, with and without weights, each workload and each form of output."""
    choices = Choices(data)
    workload, form, hardware = choices.pick(WORKLOADS), choices.below(256), HARDWARE if choices.below(4) == 0 else ()
    weights = weights_from(choices)
    config = config_from(choices)
    configs = {"config.json": config} if isinstance(config, dict) else {}
    snapshot = RepoSnapshot(
        repo_id="made/up", revision=None, commit=None, source="local", configs=configs, weights=weights
    )
    audited(snapshot, workload, hardware, form=form)


def _texts() -> Iterator[bytes]:
    for config in real_configs():
        yield json.dumps(config).encode()
    yield b'{"model_type": "llama", "num_hidden_layers": 1000000000000000000}'


@target(
    "config-text",
    allowed=(CannotAuditError, MalformedFileError),
    seeds=_texts,
    dictionary=(
        b'"model_type"',
        b'"llama"',
        b'"num_hidden_layers"',
        b"1e400",
        b"NaN",
        b"-Infinity",
        b"\\ud800",
        b"null",
        b"[[[[[[[[",
    ),
)
def config_text(data: bytes) -> None:
    """The bytes as the file."""
    config = parse_object(data, "config.json")
    snapshot = RepoSnapshot(
        repo_id="made/up", revision=None, commit=None, source="local", configs={"config.json": config}
    )
    audited(snapshot, Workload(mode=("infer", "kv", "train")[len(data) % 3]), form=len(data) // 3)
