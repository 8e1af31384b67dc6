"""What a process holds on the device beside its tensors: banded rows of overheads.toml."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.component import component, given

if TYPE_CHECKING:
    from hubaudit.types import Category, Component


def cuda_context() -> Component:
    """The CUDA context of one process on one device."""
    return _banded("cuda_context", "Context", "cuda_context")


def workspace() -> Component:
    """The cuBLAS workspace that the first matrix product allocates."""
    return _banded("workspace", "Workspace", "cublas_workspace")


def _banded(id: str, category: Category, row_name: str) -> Component:
    row = table("overheads.toml")[row_name]
    inputs = {"measured_bytes": given(row["bytes"], f"table:overheads.toml#{row_name}")}
    middle = component(id, category, "measured_bytes", inputs, exactness="fitted", source=row["source"])
    return replace(middle, low_bytes=row["low_bytes"], high_bytes=row["high_bytes"])
