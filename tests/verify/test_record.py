"""Calibration records: written, checked and read again."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from measured_runs import CONFIG, WORKLOAD, measurement, out_of_memory

from hubaudit.errors import CannotAuditError
from hubaudit.types import Workload
from hubaudit.verify.record import SCHEMA, check, failed_record, read, to_record, to_text, workload_of

if TYPE_CHECKING:
    from pathlib import Path


def records() -> list[dict[str, Any]]:
    """One that ended well, and one that did not."""
    failed = failed_record(
        out_of_memory(), repo_id="org/name", config=CONFIG, workload=WORKLOAD, device="cuda", weights="random"
    )
    return [to_record(measurement()), failed]


def test_records_follow_their_schema(tmp_path: Path) -> None:
    """By jsonschema and by our own reader, alone, in a list and a line each."""
    for record in records():
        jsonschema.validate(record, SCHEMA)
    (tmp_path / "one.json").write_text(to_text(records()[0]), encoding="utf-8")
    (tmp_path / "list.json").write_text(to_text(records()), encoding="utf-8")
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records()), encoding="utf-8")
    assert list(read(tmp_path / "one.json")) == records()[:1]
    assert list(read(tmp_path / "list.json")) == list(read(tmp_path / "lines.jsonl")) == records()


def test_the_workload_comes_back() -> None:
    """Only what differs from the defaults is kept, and that is enough."""
    asked = Workload(mode="train", lora=8, modules_to_save=("lm_head",), gradient_checkpointing="full")
    record = to_record(measurement(workload=asked))
    assert workload_of(json.loads(json.dumps(record))) == asked
    assert "zero" not in record["workload"]


_BREAKS: list[tuple[list[Any], Any, str]] = [
    (["record_version"], 2, "record_version is 2"),
    (["device"], "tpu", "device is 'tpu'"),
    (["outcome"], "fine", "outcome is 'fine'"),
    (["phases", 0, "allocated_bytes"], -1, r"phases\[0\].allocated_bytes is -1"),
    (["phases", 0, "allocated_bytes"], 1.5, "is a float"),
    (["figures", 0, "measured_bytes"], True, "is a bool"),
    (["environment", "python"], None, "environment.python is a NoneType"),
    (["rests"], {}, "rests is a dict"),
]


@pytest.mark.parametrize(("path", "value", "words"), _BREAKS)
def test_what_breaks_the_schema_is_named(path: list[Any], value: Any, words: str) -> None:
    """Where jsonschema says no, so does the reader, with the place."""
    record = copy.deepcopy(records()[0])
    at: Any = record
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(CannotAuditError, match=words):
        check(record, "record")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(record, SCHEMA)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    """Neither JSON nor there, nor complete."""
    (tmp_path / "a.json").write_text("{", encoding="utf-8")
    for name in ("a.json", "b.json"):
        with pytest.raises(CannotAuditError, match="holds no records"):
            read(tmp_path / name)
    (tmp_path / "c.json").write_text("[{}]", encoding="utf-8")
    with pytest.raises(CannotAuditError, match=r"c\.json\[0\] has no `record_version`"):
        read(tmp_path / "c.json")


def test_a_file_of_records_that_is_a_trap(tmp_path: Path) -> None:
    """Nested without end, numbers without end, true for 1, and a word that fills the screen: one short line."""
    (tmp_path / "a.json").write_text("[" * 100_000, encoding="utf-8")
    (tmp_path / "b.json").write_text("9" * 5_000, encoding="utf-8")
    for name in ("a.json", "b.json"):
        with pytest.raises(CannotAuditError, match="holds no records"):
            read(tmp_path / name)
    for key, value in (("record_version", True), ("outcome", "\x1b" * 5_000)):
        with pytest.raises(CannotAuditError, match=f"record.{key} is ") as caught:
            check({**copy.deepcopy(records()[0]), key: value}, "record")
        assert len(caught.value.message) < 250
        assert caught.value.message.isprintable()


def test_a_record_of_hostile_words_is_plain_ascii() -> None:
    """A config's escape sequences, direction marks and half characters are spelt out, so that the file can be shown and written."""
    words = "\x1b[2J\x9b\u202e\ud800"
    text = to_text({"config": {"model_type": words}})
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert json.loads(text)["config"]["model_type"] == words
