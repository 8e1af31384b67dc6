"""Small weight files of every format, made byte by byte from the formats' specifications, for tests of whole repositories."""

from __future__ import annotations

import io
import struct
import zipfile
from math import prod
from typing import TYPE_CHECKING, Any

from local_repo import safetensors_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Tensors = dict[str, tuple[str, tuple[int, ...]]]
"""Name → dtype and shape."""

# ggml.h: enum ggml_type; ggml-common.h: the blocks of each.
GGML = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144),
    "Q6_K": (14, 256, 210),
}
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
_TORCH = {
    "F32": ("FloatStorage", 4),
    "F16": ("HalfStorage", 2),
    "BF16": ("BFloat16Storage", 2),
    "I64": ("LongStorage", 8),
}


def safetensors(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A whole safetensors file of zeros."""
    sparse = safetensors_prefix([(name, dtype, shape) for name, (dtype, shape) in tensors.items()], metadata)
    return sparse.prefix + bytes(sparse.size - len(sparse.prefix))


def gguf(metadata: Mapping[str, Any], tensors: Tensors) -> bytes:
    """A GGUF file of version 3: whole numbers are uint32; shapes are row-major, as numpy shows them (docs/gguf.md)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_gguf_string(key) + _gguf_value(value) for key, value in metadata.items())
    offset = 0
    for name, (dtype, shape) in tensors.items():
        kind, elements, size = GGML[dtype]
        head += _gguf_string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", length) for length in reversed(shape)) + struct.pack("<IQ", kind, offset)
        offset += -(-prod(shape) // elements * size // 32) * 32
    return head + bytes(-len(head) % 32) + bytes(offset)


def _gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _gguf_value(value: Any) -> bytes:
    kind, raw = _gguf_typed(value)
    return struct.pack("<I", kind) + raw


def _gguf_typed(value: Any) -> tuple[int, bytes]:
    if isinstance(value, list):
        items = [_gguf_typed(item) for item in value]
        return _ARRAY, struct.pack("<IQ", items[0][0], len(items)) + b"".join(raw for _, raw in items)
    if isinstance(value, bool):
        return _BOOL, struct.pack("<B", value)
    if isinstance(value, int):
        return _UINT32, struct.pack("<I", value)
    if isinstance(value, float):
        return _FLOAT32, struct.pack("<f", value)
    return _STRING, _gguf_string(value)


def torch(
    tensors: Tensors,
    *,
    under: str | None = None,
    tied: Mapping[str, str] | None = None,
    names: tuple[str, str] | None = None,
) -> bytes:
    """A checkpoint as torch.save lays it out (torch/serialization.py): a dictionary of tensors, each in a storage of its own.

    ``under`` puts it below a key, as training programs do; ``tied`` are further names for tensors that are there. ``names`` is
    a module and a name in it that the pickle looks up and drops.
    """
    storages: dict[str, int] = {}
    items: dict[str, bytes] = {}
    for name, (dtype, shape) in tensors.items():
        kind, width = _TORCH[dtype]
        key = str(len(storages))
        storages[key] = prod(shape) * width
        items[name] = _tensor(key, kind, shape)
    items |= {name: items[other] for name, other in (tied or {}).items()}
    root = _mapping(items)
    looked_up = b"" if names is None else f"c{names[0]}\n{names[1]}\n0".encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as writer:
        writer.writestr(
            "archive/data.pkl", b"\x80\x02" + looked_up + (root if under is None else _mapping({under: root})) + b"."
        )
        for key, size in storages.items():
            writer.writestr(f"archive/data/{key}", bytes(size))
    return file.getvalue()


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def _number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _numbers(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(_number(value) for value in values) + b"t"


def _mapping(items: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(_text(key) + value for key, value in items.items()) + b"u"


def _tensor(key: str, kind: str, shape: tuple[int, ...]) -> bytes:
    strides = [prod(shape[at + 1 :]) for at in range(len(shape))]
    storage = (
        b"("
        + _text("storage")
        + f"ctorch\n{kind}\n".encode()
        + _text(key)
        + _text("cpu")
        + _number(prod(shape))
        + b"tQ"
    )
    place = _number(0) + _numbers(shape) + _numbers(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + place + b"\x89ccollections\nOrderedDict\n)RtR"


LEGACY_TORCH = b"\x80\x02\x8a\n" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b".\x80\x02M\xe9\x03."
"""How a file of torch.save began before PyTorch 1.6: a pickle of MAGIC_NUMBER, then one of the protocol's version."""
