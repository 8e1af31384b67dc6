"""The accelerators of ``hubaudit/data/gpus.json``, found by whatever name people give them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from hubaudit.data import table
from hubaudit.errors import UsageError
from hubaudit.fit.spelling import counted, normalised, spellings
from hubaudit.types import Hardware
from hubaudit.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

UsableSource: TypeAlias = Literal["process", "driver", "rule", "marketing"]
"""Where ``usable_bytes`` comes from: the total that a process on such a card was told, the board's total by nvidia-smi (one to three
percent more than a process gets), a rule that measured cards follow, or the size on the box, which no process ever gets whole."""

_MOST_SUGGESTIONS = 8
_LEAST_DEVICE_BYTES = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One row of the catalogue. ``memory_bytes`` is the size on the box, ``usable_bytes`` what a process can have of it."""

    name: str
    vendor: str
    family: str
    aliases: tuple[str, ...]
    memory_bytes: int
    memory_source: str
    usable_bytes: int
    usable_source: UsableSource
    usable_evidence: str


@cache
def catalogue() -> tuple[Gpu, ...]:
    """Every row, in the table's order: by vendor, then by generation and size."""
    return tuple(Gpu(**(row | {"aliases": tuple(row["aliases"])})) for row in table("gpus.json")["gpus"])


def search(text: str) -> tuple[Gpu, ...]:
    """The rows whose vendor, name, family or aliases hold every word of ``text``; all rows for an empty one."""
    words = text.lower().split()
    return tuple(gpu for gpu in catalogue() if all(_holds(gpu, word) for word in words))


def hardware_named(text: str) -> Hardware:
    """The accelerators that ``NAME`` or ``NAMExN`` means.

    Raises:
        UsageError: no row, or several, go by that name; the hint lists the closest.
    """
    for name, count in ((text, 1), *counted(text)):
        gpus = _called(name)
        if len(gpus) == 1:
            gpu = gpus[0]
            return Hardware(name=gpu.name, usable_bytes=gpu.usable_bytes, count=count, usable_source=gpu.usable_source)
        if gpus:
            raise UsageError(f"`{name}` comes in several sizes", hint=f"one of {_listed(gpu.name for gpu in gpus)}")
    raise UsageError(f"no accelerator named `{text}` is in the catalogue", hint=_closest(text))


def hardware_of_size(text: str) -> Hardware:
    """A device of which so many bytes can be used: ``"24GiB"``.

    Raises:
        UsageError: the text is no size, or one that no device has: a number whose unit was forgotten.
    """
    try:
        usable_bytes = parse_bytes(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if usable_bytes < _LEAST_DEVICE_BYTES:
        raise UsageError(f"no device has {usable_bytes} bytes", hint="write the unit, as in 24GiB")
    return Hardware(name=text, usable_bytes=usable_bytes, usable_source="given")


def apple_usable(memory_bytes: int) -> tuple[int, str]:
    """What Metal has by default of a Mac's memory, in bytes, and whose word that is: it follows the memory's size, not the chip.

    A size that no row has gets two thirds, the least that Metal is known to give.
    """
    for gpu in catalogue():
        if gpu.vendor == "Apple" and gpu.memory_bytes == memory_bytes:
            return gpu.usable_bytes, gpu.usable_source
    return memory_bytes * 2 // 3, "rule"


def _called(name: str) -> tuple[Gpu, ...]:
    """The one row that goes by this name, else all rows of the family, else none."""
    wanted = normalised(name)
    return _by_name().get(wanted) or _by_family().get(wanted, ())


@cache
def _by_name() -> dict[str, tuple[Gpu, ...]]:
    found: dict[str, tuple[Gpu, ...]] = {}
    for gpu in catalogue():
        for form in frozenset().union(*(spellings(name, gpu.memory_bytes >> 30) for name in (gpu.name, *gpu.aliases))):
            found[form] = (*found.get(form, ()), gpu)
    return found


@cache
def _by_family() -> dict[str, tuple[Gpu, ...]]:
    found: dict[str, tuple[Gpu, ...]] = {}
    for gpu in catalogue():
        for form in spellings(gpu.family, None):
            found[form] = (*found.get(form, ()), gpu)
    return found


def _holds(gpu: Gpu, word: str) -> bool:
    said = " ".join((gpu.vendor, gpu.name, gpu.family, *gpu.aliases)).lower()
    plain = normalised(word)
    return word in said or (bool(plain) and plain in normalised(said))


def _closest(name: str) -> str:
    wanted = normalised(name)
    forms = list(dict.fromkeys((*_by_name(), *_by_family())))
    near = [form for form in forms if wanted and wanted in form] or get_close_matches(wanted, forms, _MOST_SUGGESTIONS)
    gpus = dict.fromkeys(gpu.name for form in near for gpu in (*_by_name().get(form, ()), *_by_family().get(form, ())))
    general = "`hubaudit gpus` lists all; --memory 24GiB takes any size"
    return f"did you mean {_listed(gpus)}? {general}" if gpus else general


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _MOST_SUGGESTIONS} more" if len(names) > _MOST_SUGGESTIONS else ""
    return ", ".join(names[:_MOST_SUGGESTIONS]) + more
