"""The components of a step's moments: activations, logits, casts of weights, workspaces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.component import component, given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.estimate.component import Input
    from hubaudit.estimate.training.amounts import Amount
    from hubaudit.types import Category, Component

TRACED = (
    "storages that autograd keeps in the model code of transformers 5.23.0, operation by operation; equal to storage-lifetime traces of every "
    "type in blocks.toml"
)
_BAND_PERCENT = (2, 2)


def casts(elements: int) -> tuple[Component, ...]:
    """Casts of weights that autocast keeps."""
    if not elements:
        return ()
    inputs = {"cast_elements": given(elements, "matrices of the model whose backward pass is still to come")}
    source = "torch 2.13.0 ATen/autocast_mode.cpp: casts of leaves are cached until autocast ends, and what autograd kept lives until its use"
    return (component("weight_casts", "Workspace", "2 * cast_elements", inputs, exactness="formula", source=source),)


def activations(amount: Amount, inputs: Mapping[str, Input]) -> Component:
    """What autograd keeps."""
    return part("activations", "Activation", amount, inputs, TRACED)


def part(name: str, category: Category, amount: Amount, inputs: Mapping[str, Input], source: str) -> Component:
    """An amount as a component, with the band of all activations."""
    return component(
        name, category, amount.formula(), dict(inputs), exactness="formula", source=source, band_percent=_BAND_PERCENT
    )


def workspace(handles: int) -> Component:
    """Workspaces of cuBLAS: one for each handle, and the thread of the backward pass has its own."""
    row = table("overheads.toml")["cublas_workspace"]
    inputs = {
        "handles": given(handles, "one a thread"),
        "measured_bytes": given(row["bytes"], "table:overheads.toml#cublas_workspace"),
    }
    made = component(
        "workspace", "Workspace", "handles * measured_bytes", inputs, exactness="fitted", source=row["source"]
    )
    return replace(made, low_bytes=row["low_bytes"] * handles, high_bytes=row["high_bytes"] * handles)
