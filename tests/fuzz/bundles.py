"""Bundles: plain, gzipped and changed, through the audit."""

from __future__ import annotations

import gzip
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzz.choices import Choices, changed
from fuzz.configs import keys
from fuzz.registry import target
from fuzz.reports import audited

from hubaudit.errors import HubauditError
from hubaudit.hub.bundle import read_bundle, write_bundle
from hubaudit.types import (
    ReadProblem,
    RepoFile,
    RepoSnapshot,
    Sourced,
    TensorInfo,
    Terms,
    TokenizerFacts,
    WeightFile,
    WeightIndex,
    WeightSet,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_SNAPSHOT = RepoSnapshot(
    repo_id="org/name",
    revision="main",
    commit="0" * 40,
    source="hub",
    files=(RepoFile(path="model.safetensors", size_bytes=100), RepoFile(path="config.json")),
    configs={
        "config.json": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}
    },
    weights=(
        WeightFile(
            path="model.safetensors",
            size_bytes=100,
            format="safetensors",
            tensors=(TensorInfo("model.embed_tokens.weight", "F32", (2, 3), 24), TensorInfo("w", "BF16", (4,), 8)),
            metadata={"format": "pt"},
        ),
    ),
    indexes=(
        WeightIndex(path="model.safetensors.index.json", total_size_bytes=32, weight_map={"w": "model.safetensors"}),
    ),
    card="# Card\n",
    library_name="transformers",
    hub_parameters={"F32": 6},
    problems=(ReadProblem(path="x.bin", reason="broken"),),
    chosen=(WeightSet(format="safetensors", files=("model.safetensors",), size_bytes=100),),
    others=(WeightSet(format="torch", files=("pytorch_model.bin",), missing=("x",), note="twins"),),
    terms=Terms(licence="mit"),
    tokenizer=TokenizerFacts(tokens=Sourced(value=9, where="a"), max_tokens=Sourced(value=None, where="b")),
)


@cache
def _file() -> Path:
    return Path(tempfile.mkdtemp(prefix="hubaudit-fuzz-")) / "bundle.json"


@cache
def _written() -> bytes:
    write_bundle(_SNAPSHOT, _file())
    return _file().read_bytes()


def _bundles() -> Iterator[bytes]:
    yield _written()
    yield gzip.compress(_written(), mtime=0)
    yield b'{"hubaudit_bundle": 1}'


def _audit(content: bytes, form: int) -> None:
    _file().write_bytes(content)
    audited(read_bundle(_file()), Workload(mode=("infer", "kv", "train")[form % 3]), form=form)


@target(
    "bundle-file",
    allowed=(HubauditError,),
    seeds=_bundles,
    dictionary=(b"\x1f\x8b", b'"hubaudit_bundle":2', b'"kinds"', b'"kind_of"', b"../", b"null", b"[[["),
)
def file(data: bytes) -> None:
    """The bytes as the file."""
    _audit(data, len(data))


def _choices() -> Iterator[bytes]:
    yield b""
    yield bytes(range(3, 60))


@target("bundle-contents", allowed=(HubauditError,), seeds=_choices)
def contents(data: bytes) -> None:
    """A bundle with a few of its values replaced by any other."""
    choices = Choices(data)
    form = choices.below(256)
    made: Any = changed(
        choices,
        json.loads(_written()),
        (*keys(), "path", "files", "tensors", "kinds", "kind_of", "base", "terms", "card"),
    )
    _audit(json.dumps(made).encode(), form)
