"""The tensors that a layer of a given kind keeps, by the table of layer kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.data.dtypes import dtype_named
from hubaudit.facts.layer_plan_formula import NotKnownError
from hubaudit.types import CacheTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.facts.layer_plan_formula import Scope

TABLE = "layer_kinds.toml"


def tensors_of(kind: str, scope: Scope) -> tuple[CacheTensor, ...]:
    """What a layer of ``kind`` (several joined by ``+``) keeps, its dimensions taken from ``scope``.

    Raises:
        NotKnownError: a dimension is not known.
    """
    rows = [row for part in kind.split("+") for row in table(TABLE)[part]["tensors"]]
    tensors = [_tensor(row, scope) for row in rows]
    return tuple(tensor for tensor, row in zip(tensors, rows, strict=True) if _is_kept(tensor, row))


def _is_kept(tensor: CacheTensor, row: Mapping[str, Any]) -> bool:
    """Whether there is such a tensor: a configuration of no heads, or of heads without a width, is broken and describes no cache."""
    if tensor.window_tokens == 0 or tensor.tokens_per_entry == 0:
        raise NotKnownError(f"its {tensor.name} would be kept for no tokens")
    if tensor.elements_per_token or tensor.fixed_elements:
        return True
    if row.get("may_be_none", False):
        return False
    formula = " + ".join(row[key] for key in ("per_token", "fixed") if key in row)
    raise NotKnownError(f"its {tensor.name} would have no elements ({formula} is 0)")


def _tensor(row: Mapping[str, Any], scope: Scope) -> CacheTensor:
    elements = {"elements_per_token": "per_token", "fixed_elements": "fixed"}
    window = scope.evaluate(row["window"]) if "window" in row else None
    return CacheTensor(
        name=row["name"],
        **{field: scope.count(row[key]) if key in row else 0 for field, key in elements.items()},
        window_tokens=None if window is None else scope.count(row["window"]),
        tokens_per_entry=scope.count(row["tokens_per_entry"]) if "tokens_per_entry" in row else 1,
        unfinished=row.get("unfinished", False),
        grows_with=row.get("grows_with", "tokens"),
        dtype=_dtype(row["dtype"], scope) if "dtype" in row else None,
    )


def _dtype(formula: str, scope: Scope) -> str | None:
    """The table's name of a dtype that a configuration may spell; ``None`` where it is the cache's."""
    said = scope.evaluate(formula)
    named = dtype_named(said) if isinstance(said, str) else None
    if said is not None and named is None:
        raise NotKnownError(f"the dtype of a state is {ascii(said)[:60]}, which is none")
    return named
