"""GGUF: headers in both byte orders, and what facts and estimates make of those that are accepted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from byte_sources import BytesSource
from fuzz.registry import target
from fuzz.reports import audited
from weight_bytes import GGML, gguf

from hubaudit.errors import HubauditError, MalformedFileError
from hubaudit.formats.gguf import read_gguf
from hubaudit.types import RepoSnapshot, Workload

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
_WORDS = (
    b"GGUF", b"\x03\0\0\0", b"\x02\0\0\0", b"\0\0\0\x03", b"general.architecture", b"general.alignment", b"llama.block_count", b"split.count", b"\xff" * 8,
    *(struct.pack("<I", kind) for kind in range(13)), *(struct.pack("<I", kind) for kind, _, _ in GGML.values()),
)  # fmt: skip


def _files() -> Iterator[bytes]:
    yield gguf({}, {})
    yield gguf(_METADATA, _TENSORS)[:-1] + b"\0"
    yield gguf(_METADATA, {})
    yield gguf(
        {"general.architecture": "mamba", "mamba.block_count": 2, "mamba.ssm.state_size": 16}, {"a": ("F32", (2, 2))}
    )


@target("gguf-file", allowed=(MalformedFileError,), seeds=_files, dictionary=_WORDS)
def header(data: bytes) -> None:
    """A file as it lies on a disk."""
    read_gguf(BytesSource(data, path="model.gguf"))


@target("gguf-audit", allowed=(HubauditError,), seeds=_files, dictionary=_WORDS)
def whole_audit(data: bytes) -> None:
    """The header of a file that is large enough for whatever it announces, through the whole audit."""
    read = read_gguf(BytesSource(data, path="model.gguf", claimed_size=2**50))
    snapshot = RepoSnapshot(repo_id="made/up", revision=None, commit=None, source="local", weights=(read,))
    audited(snapshot, Workload(mode=("infer", "kv", "train")[len(data) % 3]))
