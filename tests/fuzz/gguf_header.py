"""GGUF: headers in both byte orders, and what facts and estimates make of those that are accepted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from byte_sources import BytesSource
from fuzz.registry import target
from weight_bytes import GGML, gguf

from hubaudit.errors import MalformedFileError
from hubaudit.formats.gguf import read_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator

_METADATA = {
    "general.architecture": "llama",
    "general.alignment": 32,
    "llama.block_count": 1,
    "llama.embedding_length": 32,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": [2],
    "llama.context_length": 256,
    "llama.feed_forward_length": 64,
    "tokenizer.ggml.tokens": ["<s>", "a", "b"],
}
_TENSORS = {
    "token_embd.weight": ("F16", (8, 32)),
    "blk.0.attn_q.weight": ("Q8_0", (32, 32)),
    "blk.0.attn_k.weight": ("Q8_0", (16, 32)),
    "blk.0.attn_v.weight": ("Q4_0", (16, 32)),
    "output_norm.weight": ("F32", (32,)),
}
WORDS = (
    b"GGUF", b"\x03\0\0\0", b"\x02\0\0\0", b"\0\0\0\x03", b"general.architecture", b"general.alignment", b"llama.block_count", b"split.count", b"\xff" * 8,
    *(struct.pack("<I", kind) for kind in range(13)), *(struct.pack("<I", kind) for kind, _, _ in GGML.values()),
)  # fmt: skip


def files() -> Iterator[bytes]:
    """Files of either end of what GGUF is used for: nothing at all, and a layer with its vocabulary."""
    yield gguf({}, {})
    yield gguf(_METADATA, _TENSORS)[:-1] + b"\0"
    yield gguf(_METADATA, {})
    yield gguf(
        {"general.architecture": "mamba", "mamba.block_count": 2, "mamba.ssm.state_size": 16}, {"a": ("F32", (2, 2))}
    )


@target("gguf-file", allowed=(MalformedFileError,), seeds=files, dictionary=WORDS)
def header(data: bytes) -> None:
    """A file as it lies on a disk."""
    read_gguf(BytesSource(data, path="model.gguf"))
