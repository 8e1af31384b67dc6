"""Memory that a very large repository takes, by the tensor: what a million of them takes is that many times more (`benchmarks/large_models.py`)."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from byte_sources import BytesSource
from weight_bytes import safetensors

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import NotFoundError
from hubaudit.hub.assemble import Contents, read_contents
from hubaudit.hub.bundle import write_bundle
from hubaudit.types import RepoFile, RepoSnapshot, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hubaudit.types import Json

_FEW, _MANY, _SHARDS = 1_000, 5_000, 4
_INDEX = "model.safetensors.index.json"
_CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16, "intermediate_size": 8}  # fmt: skip


class _Reader:
    """A repository in memory, whose headers come one by one, or all at once where they are given decoded."""

    parallel = 1

    def __init__(self, held: Mapping[str, bytes], at_once: str | None) -> None:
        self._held, self._at_once = held, at_once
        self.files = tuple(RepoFile(path=path, size_bytes=len(content)) for path, content in held.items())

    def read(self, path: str, max_bytes: int) -> bytes:
        if path not in self._held:
            raise NotFoundError(f"no {path!a}")
        return self._held[path][:max_bytes]

    def open(self, path: str) -> BytesSource:
        return BytesSource(self._held[path], path=path)

    def headers_at_once(self, index: str) -> tuple[Json, Mapping[str, Json]] | None:
        return None if self._at_once is None else ({"total_size": 0}, json.loads(self._at_once))


def _repository(tensors: int, *, at_once: bool) -> _Reader:
    held: dict[str, bytes] = {"config.json": json.dumps(_CONFIG).encode()}
    headers, weight_map = {}, {}
    for shard in range(_SHARDS):
        path = f"model-{shard + 1:05}-of-{_SHARDS:05}.safetensors"
        numbers = range(shard * tensors // _SHARDS, (shard + 1) * tensors // _SHARDS)
        entries = {
            f"model.layers.{at // 768}.mlp.experts.{at % 768}.gate_proj.weight": ("BF16", (1, 2)) for at in numbers
        }
        held[path] = safetensors(entries)
        headers[path] = {
            name: {"dtype": "BF16", "shape": [1, 2], "data_offsets": [at * 4, at * 4 + 4]}
            for at, name in enumerate(entries)
        }
        weight_map |= dict.fromkeys(entries, path)
    held[_INDEX] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    return _Reader(held, json.dumps(headers) if at_once else None)


def _most_bytes(work: Callable[[], object]) -> tuple[int, int]:
    """What is held at most while that runs, and what it leaves."""
    tracemalloc.start()
    try:
        kept = work()
        left, most = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return most, left


def _snapshot(contents: Contents) -> RepoSnapshot:
    return RepoSnapshot(
        repo_id="made/up", revision=None, commit=None, source="local", configs=contents.configs, weights=tuple(contents.weights),
        indexes=tuple(contents.indexes), chosen=tuple(contents.chosen),
    )  # fmt: skip


def _costs(tensors: int, path: Path, *, at_once: bool) -> dict[str, int]:
    """Bytes at most of each stage beyond what the stages before it left, and what reading leaves."""
    reader = _repository(tensors, at_once=at_once)
    reading, kept = _most_bytes(lambda: read_contents(reader))
    snapshot = _snapshot(read_contents(reader))
    assert sum(len(file.tensors) for file in snapshot.weights) == tensors
    writing, _ = _most_bytes(lambda: write_bundle(snapshot, path))
    auditing, _ = _most_bytes(lambda: audit_snapshot(snapshot, Workload()))
    return {"reading": reading, "kept": kept, "writing": writing, "auditing": auditing}


@pytest.mark.parametrize("at_once", [False, True])
def test_each_tensor_takes_no_more_than_it_may(tmp_path: Path, *, at_once: bool) -> None:
    """At most 900 bytes while headers are read, 450 kept, 450 more while they are written, 200 while they are counted: 900 MB for a million."""
    _costs(100, tmp_path / "x.json", at_once=at_once)  # the tables that any audit loads
    few, many = (_costs(count, tmp_path / "x.json", at_once=at_once) for count in (_FEW, _MANY))
    each = {stage: (many[stage] - few[stage]) / (_MANY - _FEW) for stage in many}
    allowed = {"reading": 900, "kept": 450, "writing": 450, "auditing": 200}
    assert {stage: cost for stage, cost in each.items() if cost > allowed[stage]} == {}, each
    assert each["kept"] > 100, "nothing was measured"
