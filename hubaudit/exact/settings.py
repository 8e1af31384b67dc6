"""The settings of PyTorch's caching allocator, as ``PYTORCH_CUDA_ALLOC_CONF`` spells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 2**20
_LARGE_BUFFER_BYTES = 20 * MIB
_INTERVALS = 16
#: Options that steer speed, host memory or handles between processes, and no device memory of one process.
_WITHOUT_EFFECT = {
    "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
    "pinned_free_catch_all",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
    "expandable_segments_handle_type",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """How the caching allocator rounds, splits, grows and gives back; the defaults are those of torch 2.13.

    ``max_split_bytes`` is ``None`` where every block may be split. ``roundup_power2_divisions`` holds the divisions between two powers
    of two for sizes from 1 MiB (and below) to 32 GiB (and above), 0 where sizes are rounded to 512 bytes. ``memory_fraction`` is the
    share of the device that the process may take; garbage collection works only where it is set, 1.0 included.

    Source: c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h of torch 2.13.0.
    """

    expandable_segments: bool = False
    max_split_bytes: int | None = None
    max_non_split_rounding_bytes: int = _LARGE_BUFFER_BYTES
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] = (0,) * _INTERVALS
    large_segment_bytes: int = _LARGE_BUFFER_BYTES
    memory_fraction: float | None = None


def parse_settings(text: str) -> AllocatorSettings:
    """``PYTORCH_CUDA_ALLOC_CONF``'s value as settings; an empty text gives the defaults.

    Raises:
        UsageError: an option or value that torch 2.13 refuses too, or another backend than the caching allocator.
    """
    found: dict[str, object] = {}
    for name, value in _pairs(text):
        if name == "backend" and value != "native":
            raise UsageError(f"allocator backend `{value}` is not the caching allocator, which alone is modelled")
        if name in _READERS:
            field, reader = _READERS[name]
            found[field] = reader(name, value)
        elif name != "backend" and name not in _WITHOUT_EFFECT:
            raise UsageError(
                f"`{name}` is no option of PYTORCH_CUDA_ALLOC_CONF", hint="options are name:value,name:value"
            )
    return AllocatorSettings(**found)  # type: ignore[arg-type]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """``name:value`` between commas; commas in brackets belong to the value. Blanks mean nothing."""
    depth, start = 0, 0
    compact = "".join(text.split())
    for at, sign in enumerate(compact + ","):
        depth += {"[": 1, "]": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            part, start = compact[start:at], at + 1
            if not part:
                continue
            name, colon, value = part.partition(":")
            if not colon or not value:
                raise UsageError(f"`{part}` in PYTORCH_CUDA_ALLOC_CONF has no value", hint=f"{name}:VALUE")
            yield name, value
    if depth:
        raise UsageError("a bracket in PYTORCH_CUDA_ALLOC_CONF is not closed")


def _flag(name: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise UsageError(f"`{name}` takes True or False, not `{value}`")
    return value == "True"


def _at_least_mib(least: int) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        if not value.isdecimal() or int(value) < least:
            raise UsageError(f"`{name}` takes a whole number of MiB, {least} or more, not `{value}`")
        return int(value) * MIB

    return read


def _share(*, whole: bool) -> Callable[[str, str], float]:
    def read(name: str, value: str) -> float:
        try:
            share = float(value)
        except ValueError:
            share = -1.0
        if not (0 < share < 1 or (whole and share == 1)):
            raise UsageError(f"`{name}` takes a share between 0 and 1, not `{value}`")
        return share

    return read


def _divisions(name: str, value: str) -> tuple[int, ...]:
    """One number for all sizes, or ``[SIZE_MB:NUMBER,...,>:NUMBER]``: as torch fills its 16 intervals from 1 MiB to 32 GiB."""
    if not value.startswith("["):
        return (_power(name, value),) * _INTERVALS
    filled = [0] * _INTERVALS
    last = 0
    for position, entry in enumerate(value.strip("[]").split(",")):
        size, _, number = entry.partition(":")
        divisions = 0 if number == "0" else _power(name, number)
        if size == ">":
            filled[last + 1 :] = [divisions] * (_INTERVALS - last - 1)
            continue
        last = min(_power(name, size).bit_length() - 1, _INTERVALS - 1)
        if position == 0:
            filled[:last] = [divisions] * last
        filled[last] = divisions
    return tuple(filled)


def _power(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1 or int(value) & (int(value) - 1):
        raise UsageError(f"`{name}` takes powers of two, not `{value}`")
    return int(value)


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "expandable_segments": ("expandable_segments", _flag),
    "max_split_size_mb": ("max_split_bytes", _at_least_mib(20)),
    "max_non_split_rounding_mb": ("max_non_split_rounding_bytes", _at_least_mib(20)),
    "garbage_collection_threshold": ("garbage_collection_threshold", _share(whole=False)),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "large_segment_size_mb": ("large_segment_bytes", _at_least_mib(20)),
    "per_process_memory_fraction": ("memory_fraction", _share(whole=True)),
}
