"""One tensor from one of torch's rebuild calls: its dtype, its shape, and its place in its storage.

The calls and their arguments: PyTorch 2.13, torch/_utils.py (``_rebuild_tensor_v2`` and its kin) and torch/serialization.py
(``persistent_id``: ``("storage", type, key, location, numel)``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Final

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of, dtype_named
from hubaudit.formats.pickle_machine import BrokenPickleError, Built, Global, PersistentId
from hubaudit.formats.quoting import shown

MAX_DIMENSIONS = 64  # far more than any weight has, and torch's own limit for most operations

#: Builders whose arguments begin with storage, offset, size, stride; the number is where a dtype follows, if one does.
_STRIDED: Final[dict[str, int | None]] = {
    "torch._utils._rebuild_tensor": None,
    "torch._utils._rebuild_tensor_v2": None,
    "torch._utils._rebuild_tensor_v3": 6,
    "torch._utils._rebuild_qtensor": None,
}
_META: Final = "torch._utils._rebuild_meta_tensor_no_storage"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rebuilt:
    """One tensor: its dtype as ``spelled`` spells it, its shape, and where it lies: bytes ``start`` to ``end`` of a storage.

    ``storage`` is ``None`` for a tensor on the meta device, which has no bytes.
    ``layout`` holds ``(stride, size)`` of the dimensions longer than 1, smallest stride first; ``dense`` says that the elements fill
    ``start`` to ``end`` without holes or repetition.
    """

    dtype: str
    shape: tuple[int, ...]
    storage: str | None
    storage_bytes: int
    start: int
    end: int
    dense: bool
    layout: tuple[tuple[int, int], ...]


def rebuilt(called: str, arguments: object) -> Rebuilt | None:
    """The tensor that ``called(*arguments)`` would return; ``None`` where that is no call that makes a plain tensor.

    Raises:
        BrokenPickleError: the arguments are impossible.
    """
    if called == _META:
        dtype, size = torch_dtype(argument(arguments, 0)), ints(argument(arguments, 1))
        return Rebuilt(
            dtype=spelled(dtype),
            shape=_shape(dtype, size),
            storage=None,
            storage_bytes=0,
            start=0,
            end=0,
            dense=False,
            layout=(),
        )
    return _strided(called, arguments) if called in _STRIDED else None


def _strided(called: str, arguments: object) -> Rebuilt:
    key, storage_dtype, storage_bytes = _storage(argument(arguments, 0))
    offset = ints((argument(arguments, 1),))[0]
    size, stride = ints(argument(arguments, 2)), ints(argument(arguments, 3))
    if len(size) != len(stride):
        raise BrokenPickleError(f"{len(size)} dimensions but {len(stride)} strides")
    dtype_at = _STRIDED[called]
    dtype = storage_dtype if dtype_at is None else torch_dtype(argument(arguments, dtype_at))
    bits = _dtypes()[dtype][0]
    extent = 0 if 0 in size else 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    start, end = (offset * bits // 8, ((offset + extent) * bits + 7) // 8) if extent else (0, 0)
    if end > storage_bytes:
        raise BrokenPickleError(f"it ends at byte {end} of a storage of {storage_bytes} bytes")
    layout = tuple(sorted((step, length) for length, step in zip(size, stride, strict=True) if length > 1))
    return Rebuilt(
        dtype=spelled(dtype),
        shape=_shape(dtype, size),
        storage=key,
        storage_bytes=storage_bytes,
        start=start,
        end=end,
        dense=_is_dense(layout),
        layout=layout,
    )


def _storage(value: object) -> tuple[str, str, int]:
    """Key, dtype and bytes of a storage, from its persistent id."""
    identity = value.value if isinstance(value, PersistentId) else None
    if not isinstance(identity, tuple) or len(identity) != 5 or identity[0] != "storage":
        raise BrokenPickleError("its first argument is no storage")
    kind, key, items = identity[1], identity[2], ints((identity[4],))[0]
    class_name = called_name(kind).rpartition(".")[2]
    if not isinstance(key, str) or class_name not in _storage_dtypes():
        raise BrokenPickleError(f"unknown storage type {shown(class_name)}")
    dtype = _storage_dtypes()[class_name]
    return key, dtype, items * _dtypes()[dtype][1]


def called_name(function: object) -> str:
    """The full name of a global, ``""`` for anything else."""
    return function.name if isinstance(function, Global) else ""


def argument(arguments: object, index: int) -> object:
    """One argument of a call."""
    if not isinstance(arguments, tuple) or index >= len(arguments):
        raise BrokenPickleError("it is built with too few arguments")
    value: object = arguments[index]
    return value


def ints(value: object) -> tuple[int, ...]:
    """A size, a stride or a few counts: at most ``MAX_DIMENSIONS`` integers from 0 to 2⁶³ - 1."""
    if isinstance(value, Built) and called_name(value.function) == "torch.Size":
        value = argument(value.arguments, 0)
    if not isinstance(value, list | tuple) or len(value) > MAX_DIMENSIONS:
        raise BrokenPickleError("a size or stride that is none")
    numbers = tuple(number for number in value if type(number) is int and 0 <= number < 2**63)
    if len(numbers) != len(value):
        raise BrokenPickleError("a size, stride or count that is no natural number")
    return numbers


def torch_dtype(value: object) -> str:
    """The name that torch gives a dtype that a storage can have, such as ``"bfloat16"``."""
    dtype = called_name(value).removeprefix("torch.")
    if dtype not in _dtypes():
        raise BrokenPickleError(f"unknown dtype {shown(dtype)}")
    return dtype


def spelled(dtype: str) -> str:
    """A torch dtype in safetensors' spelling, or torch's name in capitals (``"QINT8"``) where safetensors has none."""
    return dtype_named(dtype) or dtype.upper()


def _shape(dtype: str, size: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in elements of the spelled dtype: torch's ``float4_e2m1fn_x2`` holds two ``F4``, as safetensors counts them."""
    if prod(size) >= 2**63:
        raise BrokenPickleError(f"the impossible shape {shown(size)}")
    bits = _dtypes()[dtype][0]
    packed = bits // bits_of().get(spelled(dtype), bits)
    return size if packed == 1 or not size else (*size[:-1], size[-1] * packed)


def _is_dense(layout: tuple[tuple[int, int], ...]) -> bool:
    filled = 1
    for step, length in layout:
        if step != filled:
            return False
        filled *= length
    return True


@cache
def _dtypes() -> dict[str, tuple[int, int]]:
    """Bits of one element and bytes of one storage item, by torch's name of the dtype."""
    return {row["name"]: (row["element_bits"], row["item_bytes"]) for row in table("torch_types.json")["dtypes"]}


@cache
def _storage_dtypes() -> dict[str, str]:
    """The dtype of each storage class; an untyped storage is counted in bytes."""
    named = {row["name"]: row["dtype"] for row in table("torch_types.json")["storages"]}
    return named | {"UntypedStorage": "uint8"}
