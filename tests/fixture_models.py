"""The fixture bundles, and small models made by hand, for tests of every room after hub."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.facts.repository import understand
from hubaudit.hub.bundle import read_bundle
from hubaudit.types import RepoSnapshot, TensorInfo, WeightFile

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts

ROOT = Path(__file__).resolve().parent.parent
BUNDLES = sorted((ROOT / "fixtures" / "bundles").glob("*.json.gz"))
NAMES = [path.name.removesuffix(".json.gz") for path in BUNDLES]
_BITS = {"F32": 32, "BF16": 16, "F16": 16, "I64": 64, "U8": 8, "I32": 32}


@cache
def snapshot_of(name: str) -> RepoSnapshot:
    """The fixture bundle of that name."""
    return read_bundle(ROOT / "fixtures" / "bundles" / f"{name}.json.gz")


@cache
def facts_of(name: str) -> ModelFacts:
    """What hubaudit makes of that fixture."""
    return understand(snapshot_of(name))


def made(config: dict[str, Any] | None, tensors: dict[str, tuple[str, tuple[int, ...]]] | None = None) -> RepoSnapshot:
    """A repository with this config and one file of these tensors."""
    infos = tuple(_tensor(name, dtype, shape) for name, (dtype, shape) in (tensors or {}).items())
    weights = (
        (WeightFile(path="model.safetensors", size_bytes=None, format="safetensors", tensors=infos),) if infos else ()
    )
    configs = {} if config is None else {"config.json": config}
    return RepoSnapshot(repo_id="made/up", revision=None, commit=None, source="local", configs=configs, weights=weights)


def _tensor(name: str, dtype: str, shape: tuple[int, ...]) -> TensorInfo:
    count = 1
    for dimension in shape:
        count *= dimension
    return TensorInfo(name, dtype, shape, count * _BITS[dtype] // 8)
