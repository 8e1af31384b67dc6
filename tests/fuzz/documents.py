"""The small JSON files of a repository: indexes, tables of parts, tokenizers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fuzz.registry import target

from hubaudit.errors import MalformedFileError
from hubaudit.formats.documents import is_repo_path, parse_array, parse_index, parse_object
from hubaudit.formats.parts import module_parts, pipeline_parts
from hubaudit.formats.tokenizers import tokenizer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator


INDEX = {
    "metadata": {"total_size": 24},
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
}
_WORDS = (
    b'"weight_map"',
    b'"metadata"',
    b'"total_size"',
    b"../",
    b"/etc/passwd",
    b"\\u0000",
    b"\\ud800",
    b"1e400",
    b"NaN",
    b"[[[[[[[[",
)


def _indexes() -> Iterator[bytes]:
    yield json.dumps(INDEX).encode()
    yield b'{"weight_map": {}}'


@target("shard-index", allowed=(MalformedFileError,), seeds=_indexes, dictionary=_WORDS)
def index(data: bytes) -> None:
    """An index, in the repository's own folder and in another."""
    for path in ("model.safetensors.index.json", "a/b/model.safetensors.index.json"):
        found = parse_index(data, path)
        assert all(is_repo_path(shard) for shard in found.weight_map.values())
        assert found.total_size_bytes is None or 0 <= found.total_size_bytes < 2**63


def _tables() -> Iterator[bytes]:
    yield json.dumps({"_class_name": "P", "unet": ["diffusers", "UNet2DConditionModel"], "vae": [None, None]}).encode()
    yield json.dumps(
        [{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Dense", "type": "x.Dense"}]
    ).encode()


@target("parts-tables", allowed=(MalformedFileError,), seeds=_tables, dictionary=_WORDS)
def parts(data: bytes) -> None:
    """model_index.json and modules.json."""
    found = (
        module_parts(parse_array(data, "modules.json"))
        if data[:1] == b"["
        else pipeline_parts(parse_object(data, "model_index.json"))
    )
    assert all(part.folder == "" or is_repo_path(part.folder) for part in found)


def _tokenizers() -> Iterator[bytes]:
    yield json.dumps({"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 2}]}).encode()
    yield json.dumps({"added_tokens_decoder": {"5": {}}, "model_max_length": 10**30}).encode()


@target(
    "tokenizer",
    allowed=(MalformedFileError,),
    seeds=_tokenizers,
    dictionary=(b'"vocab"', b'"model"', b'"added_tokens"', b'"id"', *_WORDS),
)
def tokenizer(data: bytes) -> None:
    """tokenizer.json and tokenizer_config.json."""
    found = parse_object(data, "tokenizer.json")
    facts = tokenizer_facts(found, found)
    assert facts.tokens.value is None or facts.tokens.value > 0
