"""Small repositories for the local Hub, and a patience that lets no test wait."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from local_hub import LocalRepo, SparseFile, safetensors_prefix

from hubaudit.hub import fetch
from hubaudit.hub.session import Patience

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local_hub import LocalHub

    from hubaudit.types import RepoSnapshot

QUICK = Patience(retries=2, first_wait_seconds=0.01, answer_seconds=30.0, rate_limit_seconds=1.0)
"""Nobody waits to ask again, but for the quota, which servers count in whole seconds; a busy machine has its time to answer."""

HASTY = replace(QUICK, answer_seconds=0.5)
"""For what takes for ever: the deadline comes soon, on a busy machine sooner than the answer."""

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""A Llama of four layers, complete enough to be estimated."""

INDEX = "model.safetensors.index.json"


def layer(number: int) -> list[tuple[str, str, tuple[int, ...]]]:
    """The tensors of one layer of ``CONFIG``."""
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (32, 32),
        "self_attn.k_proj.weight": (16, 32),
        "self_attn.v_proj.weight": (16, 32),
        "self_attn.o_proj.weight": (32, 32),
        "mlp.gate_proj.weight": (64, 32),
        "mlp.up_proj.weight": (64, 32),
        "mlp.down_proj.weight": (32, 64),
        "input_layernorm.weight": (32,),
        "post_attention_layernorm.weight": (32,),
    }
    return [(f"model.layers.{number}.{name}", "BF16", shape) for name, shape in shapes.items()]


ENDS: list[tuple[str, str, tuple[int, ...]]] = [
    ("model.embed_tokens.weight", "BF16", (128, 32)),
    ("model.norm.weight", "BF16", (32,)),
    ("lm_head.weight", "BF16", (128, 32)),
]
TENSORS = [*ENDS, *(tensor for number in range(4) for tensor in layer(number))]
PARAMETERS = 2 * 128 * 32 + 32 + 4 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 2 * 32)
"""Counted by hand from the shapes above."""


def one_file(repo_id: str = "org/one", *, config: dict[str, Any] | None = None, **options: Any) -> LocalRepo:
    """A model in one file."""
    files: dict[str, SparseFile | str] = {
        "config.json": json.dumps(config or CONFIG),
        "model.safetensors": safetensors_prefix(TENSORS),
    }
    return LocalRepo(repo_id, files, **options)


def shard_name(number: int, count: int) -> str:
    """As transformers names them."""
    return f"model-{number:05}-of-{count:05}.safetensors"


def shards_of(parts: Iterable[list[tuple[str, str, tuple[int, ...]]]]) -> dict[str, SparseFile | str]:
    """One shard for each list of tensors, and their index."""
    parts = list(parts)
    names = [shard_name(number, len(parts)) for number in range(1, len(parts) + 1)]
    files: dict[str, SparseFile | str] = {
        name: safetensors_prefix(part, {"format": "pt"}) for name, part in zip(names, parts, strict=True)
    }
    weight_map = {tensor[0]: name for name, part in zip(names, parts, strict=True) for tensor in part}
    files[INDEX] = json.dumps({"metadata": {"total_size": 2 * PARAMETERS}, "weight_map": weight_map})
    return files


def sharded(repo_id: str = "org/sharded", **options: Any) -> LocalRepo:
    """The same model in four shards, one layer each."""
    parts = [[*ENDS, *layer(0)], layer(1), layer(2), layer(3)]
    return LocalRepo(repo_id, {"config.json": json.dumps(CONFIG), **shards_of(parts)}, **options)


def fetch_quickly(name: str, **options: Any) -> RepoSnapshot:
    """``fetch`` with ``QUICK``."""
    return fetch(name, patience=options.pop("patience", QUICK), **options)


def parameters(snapshot: RepoSnapshot) -> int:
    """Elements of all tensors."""
    total = 0
    for file in snapshot.weights:
        for tensor in file.tensors:
            count = 1
            for size in tensor.shape:
                count *= size
            total += count
    return total


def asked(hub: LocalHub) -> list[str]:
    """What each request was for, in the order of coming: ``info``, ``headers``, ``config.json``, ``cdn x.safetensors``."""
    return [_name(request.host, request.path, request.file) for request in hub.requests]


def _name(host: str, path: str, file: str) -> str:
    if host == "cdn":
        return f"cdn {file.rpartition('/')[2]}"
    if "/safetensors-metadata/" in path:
        return "headers"
    if path.startswith("/api/resolve-cache/"):
        return f"cached {path.rpartition('/')[2]}"
    if "/resolve/" in path:
        return path.rpartition("/")[2]
    return "info" if path.startswith("/api/models/") else path
