"""The table of quantization methods, quantizers.toml, as typed rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hubaudit.data import table

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Container:
    """A kind of tensor whose elements hold several values, or parts of one. Rows are themselves only, so that caches find them fast.

    ``needs`` are endings of tensors without which it is no such container, ``companions`` of all that tell of it. ``tells_its_method`` where its
    names and shapes are enough to know the method by.
    """

    ending: str
    dtypes: frozenset[str]
    layout: str
    needs: tuple[str, ...]
    axis: int
    bits: int | None
    bits_by: tuple[str, str] | None
    length_by: str | None
    length_by_axis: str | None
    scales: str | None
    same_axis: int | None
    scales_are_padded: bool
    group: int | None
    group_by_scale_dtype: bool
    companions: tuple[str, ...]
    tells_its_method: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One quantization method: how configs call it, and what its tensors are.

    ``whole_dtypes`` are integer dtypes of which one element is one parameter, ``auxiliary`` endings of tensors that are no parameters, ``beside``
    endings that are none where another tensor stands beside them, ``unbuilt`` and ``unbuilt_beside`` those of which a runtime makes no tensor at
    all. ``classes`` are torchao's tensor classes. ``says`` are the keys by which a config without a method's name shows which it is.
    """

    name: str
    called: tuple[str, ...]
    says: tuple[str, ...]
    whole_dtypes: frozenset[str]
    containers: tuple[Container, ...]
    auxiliary: tuple[str, ...]
    beside: Mapping[str, str]
    unbuilt: tuple[str, ...]
    unbuilt_beside: Mapping[str, tuple[str, ...]]
    classes: Mapping[str, Mapping[str, Any]]

    @property
    def has_flat_containers(self) -> bool:
        """Whether a container's shape says nothing of the weight's."""
        return any(container.layout == "flat" for container in self.containers)


@cache
def methods() -> tuple[Method, ...]:
    """Every method of the table, in its order."""
    rows = {row["name"]: row for row in table("quantizers.toml")["method"]}
    return tuple(_method(row, [rows[name] for name in row.get("like", ())]) for row in rows.values())


@cache
def method_called(spelling: str) -> Method | None:
    """The method that a config's ``quant_method`` names, ``None`` where the table has none."""
    plain = spelling.strip().lower().replace("_", "-")
    return next((method for method in methods() if plain in method.called), None)


@cache
def common_auxiliary() -> tuple[str, ...]:
    """Endings of tensors that are no parameters in any quantized checkpoint."""
    return tuple(table("quantizers.toml")["common"]["auxiliary"])


@cache
def plain_integers() -> tuple[str, ...]:
    """Endings of integer tensors that are no containers, in any quantized checkpoint."""
    return tuple(table("quantizers.toml")["common"]["plain"])


@cache
def scale_dtypes() -> frozenset[str]:
    """Dtypes that hold nothing but scales, in any checkpoint."""
    return frozenset(table("quantizers.toml")["common"]["scale_dtypes"])


@cache
def block_of_scale(dtype: str) -> int | None:
    """How many 4-bit floating values share a scale of this dtype; ``None`` where no format has such scales."""
    size = table("quantizers.toml")["block_of_scale"].get(dtype)
    return size if isinstance(size, int) else None


def _method(row: Mapping[str, Any], like: list[Mapping[str, Any]]) -> Method:
    merged = [row, *like]
    return Method(
        name=row["name"],
        called=tuple(name.replace("_", "-") for name in row["called"]),
        says=tuple(row.get("says", ())),
        whole_dtypes=frozenset(dtype for part in merged for dtype in part.get("whole_dtypes", ())),
        containers=tuple(_container(item) for part in merged for item in part.get("container", ())),
        auxiliary=tuple(dict.fromkeys(ending for part in merged for ending in part.get("auxiliary", ()))),
        beside={ending: other for part in merged for ending, other in part.get("beside", {}).items()},
        unbuilt=tuple(row.get("unbuilt", ())),
        unbuilt_beside={name: tuple(endings) for name, endings in row.get("unbuilt_beside", {}).items()},
        classes=row.get("classes", {}),
    )


def _container(row: Mapping[str, Any]) -> Container:
    by, group = row.get("bits_by"), row.get("group")
    named = (*row.get("needs", ()), *(row.get(key) for key in ("scales", "length_by", "length_by_axis")), *(by or ()))
    return Container(
        ending=row["ending"],
        dtypes=frozenset(row["dtypes"]),
        layout=row["layout"],
        needs=tuple(row.get("needs", ())),
        axis=row.get("axis", -1),
        bits=row.get("bits"),
        bits_by=None if by is None else (by[0], by[1]),
        length_by=row.get("length_by"),
        length_by_axis=row.get("length_by_axis"),
        scales=row.get("scales"),
        same_axis=row.get("same_axis"),
        scales_are_padded=row.get("scales_are_padded", False),
        group=group if isinstance(group, int) else None,
        group_by_scale_dtype=group == "by scale dtype",
        companions=tuple(dict.fromkeys(ending for ending in named if ending is not None)),
        tells_its_method=row.get("tells_its_method", True),
    )
