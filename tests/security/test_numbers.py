"""Numbers and repeated keys that JSON can spell and no model has, in every field that is read: a reason, and short output."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from fuzz.reports import FORMS, audited
from small_repos import CONFIG, INDEX, parameters
from weight_bytes import safetensors

from hubaudit.errors import CannotAuditError
from hubaudit.formats.documents import parse_index, parse_object
from hubaudit.hub import fetch
from hubaudit.hub.bundle import write_bundle
from hubaudit.types import RepoSnapshot, Workload

if TYPE_CHECKING:
    from pathlib import Path

#: As the text of the file spells them.
SPELT = {
    "huge": "9" * 4_000,
    "below": "-" + "9" * 4_000,
    "beyond 64 bits": str(2**64),
    "overflow": "1e400",
    "float": "1e308",
    "nan": "NaN",
    "minus zero": "-0.0",
    "true": "true",
    "text": '"' + "9" * 4_000 + '"',
    "list": "[" + "9" * 4_000 + "]",
    "deep": "[" * 900 + "]" * 900,
    "rope": '{"rope_type": "yarn", "factor": ' + "9" * 4_000 + ', "original_max_position_embeddings": ' + "9" * 4_000 + "}",
    "long rope": '{"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": ' + "9" * 4_000 + "}",
}  # fmt: skip
FIELDS = (
    *(name for name, value in CONFIG.items() if type(value) is int),
    "head_dim", "sliding_window", "rope_scaling", "rope_parameters", "quantization_config", "layer_types", "num_local_experts", "text_config",
)  # fmt: skip


@pytest.mark.parametrize("spelt", SPELT)
@pytest.mark.parametrize("field", FIELDS)
def test_a_number_of_thousands_of_digits_is_a_reason(field: str, spelt: str) -> None:
    """Never a traceback, and no form of output repeats the digits: 4,000 of them were multiplied into the size of a cache once."""
    text = json.dumps({key: value for key, value in CONFIG.items() if key != field})
    config = parse_object(f'{text[:-1]}, "{field}": {SPELT[spelt]}}}'.encode(), "config.json")
    snapshot = RepoSnapshot(
        repo_id="made/up", revision=None, commit=None, source="local", configs={"config.json": config}
    )
    for mode in ("infer", "train"):
        try:
            report = audited(snapshot, Workload(mode=mode))
        except CannotAuditError as error:
            assert len(error.message) < 500  # noqa: PT017 - either end is right
            continue
        assert report is not None
        for form in FORMS:
            assert not re.search(r"\d{320}", form(report))


@pytest.mark.parametrize("total", ["1e400", "NaN", "true", '"16"', "-1", "9" * 4_000, "null", "[]"])
def test_a_total_size_that_is_none(total: str) -> None:
    """In the metadata of an index: it is not known, and the map counts all the same."""
    text = f'{{"metadata": {{"total_size": {total}}}, "weight_map": {{"w": "a.safetensors"}}}}'
    index = parse_index(text.encode(), INDEX)
    assert (index.total_size_bytes, dict(index.weight_map)) == (None, {"w": "a.safetensors"})


def _twice(config: dict[str, Any], key: str, last: object) -> str:
    return f'{json.dumps(config)[:-1]}, "{key}": {json.dumps(last)}}}'


def test_of_keys_that_repeat_the_last_counts_everywhere(tmp_path: Path) -> None:
    """As for transformers, which reads with Python's json: the folder and the bundle of it give one answer. Headers may not repeat keys at all."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(_twice(CONFIG, "num_hidden_layers", 2))
    (folder / "model.safetensors").write_bytes(safetensors({"w": ("F32", (2, 2))}))
    snapshot = fetch(str(folder))
    write_bundle(snapshot, tmp_path / "b.json")
    for read in (snapshot, fetch(str(tmp_path / "b.json"))):
        report = audited(read, Workload())
        assert report is not None
        assert report.facts.layers.value == 2
        assert parameters(read) == 4


def test_of_tensors_that_repeat_in_an_index_the_last_counts() -> None:
    """The same rule for an index, whose map is held against the headers afterwards."""
    index = parse_index(b'{"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}}', INDEX)
    assert dict(index.weight_map) == {"w": "b.safetensors"}


def test_a_bundle_of_two_subjects_has_the_last(tmp_path: Path) -> None:
    """And for a bundle, so that no two commands take it for two models."""
    file = tmp_path / "b.json"
    write_bundle(
        RepoSnapshot(repo_id="a/b", revision=None, commit=None, source="local", configs={"config.json": CONFIG}), file
    )
    file.write_text(_twice(json.loads(file.read_text()), "repo_id", "c/d"))
    assert fetch(str(file)).repo_id == "c/d"
