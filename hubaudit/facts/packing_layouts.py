"""One packed tensor and its companions → the weight it holds: a function for each layout that quantizers.toml names.

Every function answers ``None`` where shapes contradict the layout, so that a wrong guess of bits or group size is found out and not counted.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hubaudit.data.dtypes import bits_of
from hubaudit.facts.quantizers import block_of_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hubaudit.facts.quantizers import Container

    Beside = Mapping[str, "Stored"]

#: Block sizes that bitsandbytes quantizes by: `functional.quantize_4bit`, 95f9af30.
_BNB_BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_TILE = 16  # rows of a Marlin tile: AutoGPTQ and AutoAWQ, marlin.py
_INTERLEAVED_ROWS = 4  # AutoAWQ, gemv_fast.py


class Stored(NamedTuple):
    """A tensor as the file declares it, without its name."""

    dtype: str
    shape: tuple[int, ...]


class Setting(NamedTuple):
    """Width of a value in bits and how many values share a scale (-1: a whole row or more), as a config says them; ``None`` where it does not."""

    bits: int | None = None
    group_size: int | None = None


class Unpacked(NamedTuple):
    """The weight that a packed tensor holds. ``shape`` is ``None`` where only its size can be told."""

    elements: int
    bits: int
    shape: tuple[int, ...] | None = None


def along(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """Values packed densely along one axis: a length of ``n`` fills ⌈n × bits ÷ width of the container⌉ elements.

    Where no companion gives ``n``, containers are taken to be full, as they are wherever the length is a multiple of 32.
    """
    width, bits = bits_of()[stored.dtype], _bits(stored, beside, row, setting)
    if bits is None or bits > width or len(stored.shape) < -row.axis or not _same_axis(stored, beside, row):
        return None
    held = stored.shape[row.axis]
    length = _length(held * width // bits, beside, row, setting)
    if length is None or -(-length * bits // width) != held:
        return None
    shape = list(stored.shape)
    shape[row.axis] = length
    return Unpacked(elements=prod(shape), bits=bits, shape=tuple(shape))


def _bits(stored: Stored, beside: Beside, row: Container, setting: Setting) -> int | None:
    """The layout's own width, else what packed and unpacked companions of one shape tell, else the config's word."""
    if row.bits is not None:
        return row.bits
    if row.bits_by is not None and all(name in beside for name in row.bits_by):
        packed, plain = (beside[name] for name in row.bits_by)
        bits, rest = divmod(prod(packed.shape) * bits_of()[packed.dtype], max(prod(plain.shape), 1))
        if packed.dtype == stored.dtype and not rest and 0 < bits <= 8:
            return bits
    return setting.bits if setting.bits and 0 < setting.bits <= 8 else None


def _same_axis(stored: Stored, beside: Beside, row: Container) -> bool:
    if row.same_axis is None or row.scales is None or row.scales not in beside:
        return True
    scales = beside[row.scales].shape
    return len(scales) < 2 or (len(stored.shape) >= 2 and scales[row.same_axis] == stored.shape[row.same_axis])


def _length(capacity: int, beside: Beside, row: Container, setting: Setting) -> int | None:
    """The packed axis' own length: a companion's, else what the scales' groups say, else all that fits."""
    if row.length_by is not None and row.length_by in beside:
        return prod(beside[row.length_by].shape)
    if row.length_by_axis is not None:
        other = beside[row.length_by_axis].shape
        return other[row.axis] if len(other) >= 2 else None
    if row.scales is None or row.scales not in beside:
        return capacity
    scales = beside[row.scales]
    group = block_of_scale(scales.dtype) if row.group_by_scale_dtype else row.group or setting.group_size
    groups = scales.shape[row.axis] if len(scales.shape) >= -row.axis else 1
    if group is None:
        return capacity if not row.group_by_scale_dtype and groups and capacity % groups == 0 else None
    if group < 1:
        return capacity if groups == 1 else None
    needed = -(-capacity // group)
    if groups == needed or (row.scales_are_padded and groups > needed):
        return capacity
    return groups * group if groups * group < capacity else None


def flat(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """4 bit of bitsandbytes: the whole weight in one column, one statistic for every block. An odd number of values counts as the even one above."""
    elements = prod(stored.shape) * bits_of()[stored.dtype] // 4
    blocks = prod(beside[row.needs[0]].shape)
    if not any(-(-elements // size) == blocks for size in _BNB_BLOCKS):
        return None
    return Unpacked(elements=elements, bits=4)


def marlin(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """Tiles of 16 inputs: [inputs ÷ 16, outputs × 16 × bits ÷ width], scales of [groups, outputs]."""
    bits, width = row.bits or setting.bits, bits_of()[stored.dtype]
    scales = beside[row.needs[0]].shape
    if (
        bits is None
        or len(stored.shape) != 2
        or len(scales) != 2
        or scales[1] * _TILE * bits != stored.shape[1] * width
    ):
        return None
    shape = (stored.shape[0] * _TILE, scales[1])
    return Unpacked(elements=prod(shape), bits=bits, shape=shape)


def interleaved(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """AutoAWQ's "gemv_fast": four outputs in one row of int16."""
    scales = beside[row.needs[0]].shape
    if len(stored.shape) != 2 or len(scales) != 2 or stored.shape[0] * _INTERLEAVED_ROWS != scales[1]:
        return None
    shape = (scales[1], stored.shape[1])
    return Unpacked(elements=prod(shape), bits=4, shape=shape)


def blocks(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """gpt-oss: [..., groups, bytes of a group] with a scale for every group; the last two axes are one of the weight's."""
    if len(stored.shape) < 3 or beside[row.needs[0]].shape != stored.shape[:-1]:
        return None
    shape = (*stored.shape[:-2], stored.shape[-2] * stored.shape[-1] * 2)
    return Unpacked(elements=prod(shape), bits=4, shape=shape)


def regrouped(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """HQQ and Quanto: the weight reshaped to groups (rows or columns), packed along the first axis, one scale a group.

    Groups as rows, [⌈groups ÷ values of a container⌉, group size], tell all by themselves; for groups as columns the config must say the group size.
    """
    scales = beside[row.needs[0]].shape
    if len(stored.shape) != 2 or len(scales) != 2:
        return None
    if scales[1] == 1:
        lines, elements = scales[0], scales[0] * stored.shape[1]
    elif scales[0] == 1 and scales[1] == stored.shape[1] and setting.group_size:
        lines, elements = setting.group_size, setting.group_size * scales[1]
    else:
        return None
    widths = (setting.bits,) if setting.bits else (3,) if stored.dtype == "I32" else (8, 4, 2, 1)
    bits = next((bits for bits in widths if -(-lines // _values_held(stored.dtype, bits)) == stored.shape[0]), None)
    return None if bits is None else Unpacked(elements=elements, bits=bits)


def _values_held(dtype: str, bits: int) -> int:
    """HQQ packs 8, 4, 2 and 1 bit into bytes and ten values of 3 bits into 32; 5 and 6 bits take a byte each, 1.58 bits are rounded to 2."""
    return max(bits_of()[dtype] // bits, 1)


def codebooks(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """AQLM: codes [output groups, input groups, codebooks] for tiles of codebooks [codebooks, entries, outputs of a group, inputs of a group]."""
    books = beside[row.needs[0]].shape
    if len(stored.shape) != 3 or len(books) != 4 or stored.shape[2] != books[0] or prod(books) == 0:
        return None
    shape = (stored.shape[0] * books[2], stored.shape[1] * books[3])
    code_bits = (books[1] - 1).bit_length() * books[0]
    return Unpacked(elements=prod(shape), bits=max(code_bits // (books[2] * books[3]), 1), shape=shape)


def elements(stored: Stored, beside: Beside, row: Container, setting: Setting) -> Unpacked | None:
    """One element, one value."""
    return Unpacked(elements=prod(stored.shape), bits=bits_of()[stored.dtype], shape=stored.shape)


LAYOUTS: Mapping[str, Callable[[Stored, Beside, Container, Setting], Unpacked | None]] = {
    "along": along,
    "flat": flat,
    "marlin": marlin,
    "interleaved": interleaved,
    "blocks": blocks,
    "regrouped": regrouped,
    "codebooks": codebooks,
    "elements": elements,
}
