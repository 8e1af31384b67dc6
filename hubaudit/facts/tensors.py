"""Tensors → groups of one role, shape and dtype: 92,000 tensors of a large model are some hundred groups."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from hubaudit.data import table
from hubaudit.facts.packing import PLAINLY, Held
from hubaudit.types import ParameterCount, TensorGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hubaudit.facts.packing import Unpack
    from hubaudit.types import TensorInfo

#: Starts with a literal and ends with literals, which makes the search over 100,000 names quick.
_NUMBER = re.compile(r"\.[0-9]+(?=\.|\Z)")
_TO_ZERO = bytes.maketrans(b"0123456789", b"0" * 10)
_RARE_NUMBER = re.compile(r"(?:^|(?<=expert_))\d+(?![^.])")
#: Buffers that a runtime loads and uses: statistics of batch norm.
_LIVE_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
#: Roles of which one token passes through `experts_per_token` of `experts`, not through all.
_ROUTED = "expert"
_MAX_DIGITS = 9
#: The longest names of real checkpoints have a third of it.
_LONGEST_PATTERN = 1_000
_DIGIT = re.compile("[0-9]")
ExtrasOf: TypeAlias = "Callable[[Sequence[str]], Sequence[str | None]]"
_Key: TypeAlias = "tuple[str, str, tuple[int, ...], Held, str | None]"


def pattern_of(name: str) -> str:
    """A tensor's name with every number that stands alone replaced by ``*``."""
    pattern = _NUMBER.sub(".*", name)
    return _RARE_NUMBER.sub("*", pattern) if name[:1].isdigit() or "expert_" in name else pattern


def by_name(tensors: Sequence[TensorInfo]) -> dict[str, TensorInfo]:
    """Tensors by their names; of two that share one the first counts."""
    found = {tensor.name: tensor for tensor in tensors}
    return found if len(found) == len(tensors) else found | {tensor.name: tensor for tensor in reversed(tensors)}


def group_tensors(
    tensors: Mapping[str, TensorInfo],
    *,
    extras_of: ExtrasOf = lambda names: [None] * len(names),
    held_by: Unpack = PLAINLY,
) -> tuple[TensorGroup, ...]:
    """Group tensors by pattern, dtype, shape, what they hold and by what ``extras_of(names)`` says.

    Args:
        tensors: all tensors of all weight files by name.
        extras_of: for each name why a runtime does not build the tensor, or ``None`` where it does.
        held_by: what one tensor holds; for quantized checkpoints that of :func:`hubaudit.facts.packing.unpacker`.
    """
    found: dict[_Key, list[Sequence[TensorInfo]]] = {}
    for alike in _alike_but_for_digits(tensors):
        for key, those in _split(alike, extras_of, held_by):
            found.setdefault(key, []).append(those)
    return tuple(_group(*key, tuple(chain.from_iterable(parts))) for key, parts in found.items())


def _alike_but_for_digits(tensors: Mapping[str, TensorInfo]) -> Iterable[list[TensorInfo]]:
    """The tensors of one dtype, one shape and one name with a zero for every digit: the 92,000 of a large model are some hundred lists."""
    found: dict[tuple[bytes, str, tuple[int, ...]], list[TensorInfo]] = {}
    for name, tensor in tensors.items():
        key = (name.encode("utf-8", "surrogatepass").translate(_TO_ZERO), tensor.dtype, tensor.shape)
        alike = found.get(key)
        if alike is None:
            alike = found[key] = []
        alike.append(tensor)
    return found.values()


def _split(
    alike: list[TensorInfo], extras_of: ExtrasOf, held_by: Unpack
) -> Iterator[tuple[_Key, Sequence[TensorInfo]]]:
    """Such a list by what still differs: digits that are no number of their own, what a tensor holds, and why it is not built."""
    _, dtype, shape, _ = alike[0]
    pattern = pattern_of(alike[0].name)
    if _DIGIT.search(pattern) is not None:
        for tensor, extra in zip(alike, extras_of([tensor.name for tensor in alike]), strict=True):
            held = held_by(tensor)
            yield (pattern_of(tensor.name), dtype, shape, held, extra or held.extra), (tensor,)
        return
    for held, those in held_by.told_apart(alike):
        for extra, same in _by_extra(those, extras_of):
            yield (pattern, dtype, shape, held, extra or held.extra), same


def _by_extra(tensors: Sequence[TensorInfo], extras_of: ExtrasOf) -> Iterator[tuple[str | None, Sequence[TensorInfo]]]:
    extras = extras_of([tensor.name for tensor in tensors])
    for extra in dict.fromkeys(extras):
        yield extra, [tensor for tensor, own in zip(tensors, extras, strict=True) if own == extra]


def _group(
    pattern: str, dtype: str, shape: tuple[int, ...], held: Held, extra: str | None, tensors: Sequence[TensorInfo]
) -> TensorGroup:
    count = len(tensors)
    # A causal mask that older versions saved beside the projections bears the name of a bias; a bias has one dimension.
    is_mask = len(shape) == 4 and pattern.endswith((".attn.bias", ".attention.bias"))
    role = "buffer" if is_mask else role_of(pattern)
    return TensorGroup(
        pattern=pattern,
        role=role,
        kind="scale" if held.is_scale else _kind(role, pattern, held.shape or shape),
        dtype=dtype,
        shape=shape,
        count=count,
        parameters=None if held.parameters is None else count * held.parameters,
        stored_bytes=sum([tensor.stored_bytes for tensor in tensors]),
        extra="buffer" if role == "buffer" and extra is None and not pattern.endswith(_LIVE_BUFFERS) else extra,
        logical_shape=held.shape,
        bits=held.bits,
        numbers=_numbers(pattern, [tensor.name for tensor in tensors]),
    )


def _numbers(pattern: str, names: list[str]) -> tuple[tuple[int, int], ...]:
    """The first numbers in the names of one pattern, each with how many names have it; empty where there is none, or one too long to be meant."""
    start = pattern.find("*")
    if start < 0:
        return ()
    if start + 1 == len(pattern):
        written = Counter([name[start:] for name in names])
    else:
        written = Counter([name[start : name.find(".", start)] for name in names])
    if any(len(digits) > _MAX_DIGITS or not digits.isdecimal() for digits in written):
        return ()
    return tuple(sorted((int(digits), count) for digits, count in written.items()))


@cache
def _rows() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["match"], re.IGNORECASE), row["role"]) for row in table("roles.toml")["row"])


@cache
def role_of(pattern: str) -> str:
    """What tensors of this name are for: a role of roles.toml, ``"other"`` where no row matches."""
    if len(pattern) > _LONGEST_PATTERN:
        return "other"
    return next((role for match, role in _rows() if match.search(pattern)), "other")


def _kind(role: str, pattern: str, shape: tuple[int, ...]) -> str:
    if role in ("buffer", "norm"):
        return role
    if role == "expert" and len(shape) >= 2:
        return "experts"
    if len(shape) < 2:
        return "bias" if pattern.endswith("bias") else "vector"
    if role == "embedding" and len(shape) == 2:
        return "embedding"
    return "linear" if len(shape) == 2 else "conv"


def count_parameters(
    groups: Iterable[TensorGroup], *, experts: int | None, experts_per_token: int | None, is_moe: bool, where: str
) -> ParameterCount:
    """Add the groups up, by dtype and by role, and the share of them that one token passes through. Every group's parameters must be known.

    ``active`` takes ``experts_per_token / experts`` of the routed experts and all of the rest, embeddings included, which is how
    model cards count ("8x7B, 12.9B active").
    """
    groups = tuple(groups)
    by_dtype: dict[str, int] = {}
    by_role: dict[str, int] = {}
    extra: dict[str, int] = {}
    for group in groups:
        if not group.parameters:
            continue
        by_dtype[group.dtype] = by_dtype.get(group.dtype, 0) + group.parameters
        by_role[group.role] = by_role.get(group.role, 0) + group.parameters
        if group.extra is not None:
            extra[group.extra] = extra.get(group.extra, 0) + group.parameters
    total = sum(by_dtype.values())
    loaded = total - sum(extra.values())
    routed = sum(group.parameters or 0 for group in groups if group.role == _ROUTED and group.extra is None)
    return ParameterCount(
        total=total,
        loaded=loaded,
        active=_active(loaded, routed, experts, experts_per_token) if is_moe or routed else loaded,
        by_dtype=_sorted(by_dtype),
        by_role=_sorted(by_role),
        extra=_sorted(extra),
        where=where,
    )


def _active(loaded: int, routed: int, experts: int | None, experts_per_token: int | None) -> int | None:
    if not experts or not experts_per_token or experts_per_token > experts:
        return None
    return loaded - routed + routed * experts_per_token // experts


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
