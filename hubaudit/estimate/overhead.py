"""What a process holds on the device beside its tensors: measured rows of tables, each with its band."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.component import component, given

if TYPE_CHECKING:
    from hubaudit.types import Category, Component

_TABLE = "overheads.toml"


def cuda_context() -> Component:
    """The CUDA context of one process on one device."""
    return banded("cuda_context", "Context", _TABLE, "cuda_context")


def workspace() -> Component:
    """The cuBLAS workspace that the first matrix product allocates."""
    return banded("workspace", "Workspace", _TABLE, "cublas_workspace")


@cache
def banded(id: str, category: Category, table_name: str, row_name: str) -> Component:
    """A row of measured bytes with its lower and upper end, as a component."""
    row = table(table_name)[row_name]
    inputs = {"measured_bytes": given(row["bytes"], f"table:{table_name}#{row_name}")}
    middle = component(id, category, "measured_bytes", inputs, exactness="fitted", source=row["source"])
    return replace(middle, low_bytes=row["low_bytes"], high_bytes=row["high_bytes"])
