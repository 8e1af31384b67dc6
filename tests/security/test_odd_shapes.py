"""Tensors whose names promise a matrix and whose headers say otherwise: a file may hold any shape under any name."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from fixture_models import ROOT
from fuzz.reports import audited

from hubaudit.hub import fetch
from hubaudit.types import Hardware, RepoSnapshot, TensorInfo, Workload

_WORKLOADS = (
    Workload(mode="train"),
    Workload(mode="train", lora=8, lora_targets="all-linear", quant="nf4"),
    Workload(quant="int8"),
    Workload(runtime="vllm", tp=2),
    Workload(runtime="llama.cpp", cache="expanded"),
)
_SMALL = (Hardware(name="card", usable_bytes=2**30),)


def _reshaped(snapshot: RepoSnapshot, shape: tuple[int, ...], ends: str) -> RepoSnapshot:
    """The snapshot with every tensor of which the name ends so in this shape."""
    width = 2  # bytes of BF16
    made = TensorInfo("", "BF16", shape, prod(shape) * width)
    weights = tuple(
        replace(
            file,
            size_bytes=None,
            tensors=tuple(made._replace(name=one.name) if one.name.endswith(ends) else one for one in file.tensors),
        )
        for file in snapshot.weights
    )
    return replace(snapshot, weights=weights)


@pytest.mark.parametrize("shape", [(), (7,)], ids=str)
@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("llama-3.1-8b", ""),
        ("llama-3.1-8b", "down_proj.weight"),
        ("deepseek-v2-lite", "kv_b_proj.weight"),
        ("deepseek-v2-lite", "shared_experts.down_proj.weight"),
        ("mamba-130m-hf", "A_log"),
        ("lfm2-1.2b", "w2.weight"),
    ],
)
def test_a_matrix_that_is_none(name: str, ends: str, shape: tuple[int, ...]) -> None:
    """Every workload ends in a report that adds up, or in a typed error, whatever dimensions the tensors have."""
    snapshot = fetch(str(ROOT / "fixtures" / "bundles" / f"{name}.json.gz"))
    assert any(one.name.endswith(ends) for file in snapshot.weights for one in file.tensors)
    for workload in _WORKLOADS:
        audited(_reshaped(snapshot, shape, ends), workload, _SMALL if workload.quant == "int8" else ())
