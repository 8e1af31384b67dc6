"""Models side by side, and what changed between two revisions: the same facts as in each report, and every difference and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fixture_models import NAMES, made, snapshot_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import NotFoundError
from hubaudit.fit.catalogue import hardware_named
from hubaudit.report.changes import changes
from hubaudit.report.compare import Compared, changed, rows, to_json, to_markdown, to_text
from hubaudit.report.wire import to_wire
from hubaudit.types import RepoSnapshot, Workload
from hubaudit.units import format_bytes

HOSTILE = "evil/\x1b[31m|`<b>\u202e"
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512, "torch_dtype": "bfloat16",
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}  # fmt: skip


def compared(snapshot: RepoSnapshot, *cards: str) -> Compared:
    """One subject, audited with the default workload."""
    report = audit_snapshot(snapshot, Workload(), tuple(map(hardware_named, cards)))
    return Compared(name=snapshot.repo_id, audited=(snapshot, report))


def revision(commit: str, **config: Any) -> Compared:
    """The small model at a revision, with these values of its config."""
    return compared(
        replace(made(CONFIG | config, {"model.norm.weight": ("BF16", (64,))}), repo_id="org/one", commit=commit)
    )


def test_every_row_is_of_the_report() -> None:
    """Parameters, widths, components and totals stand under their model; a verdict and its limits for every device."""
    names = ["llama-3.1-8b", "mixtral-8x7b-v0.1", "mamba-130m-hf"]
    subjects = [compared(snapshot_of(name), "4090") for name in names]
    table = {row[0]: row[1:] for row in rows(subjects)}
    for at, one in enumerate(subjects):
        assert one.audited is not None
        report = one.audited[1]
        assert report.facts.parameters is not None
        assert table["parameters"][at] == f"{report.facts.parameters.total:,}"
        assert table["total"][at] == format_bytes(report.estimate.total_bytes)
        assert table["GeForce RTX 4090"][at].startswith(report.fit[0].verdict)
    assert table["experts"] == ("", "2 of 8", "")
    assert list(table).index("recurrent state") < list(table).index("total")


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_text_fits_into_eighty_columns(count: int) -> None:
    """Three models beside each other at most; long names go on below."""
    text = to_text([compared(snapshot_of(name), "h100x2") for name in NAMES[:count]])
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_one_that_fails_is_a_column_with_its_reason() -> None:
    """The others are compared all the same."""
    subjects = [compared(snapshot_of("gpt2")), Compared(name="no/such", error=NotFoundError("gone"))]
    table = {row[0]: row[1:] for row in rows(subjects)}
    assert table["not audited"] == ("", "gone")
    assert table["layers"] == ("12", "")
    assert json.loads(to_json(subjects))["subjects"][1]["error"]["message"] == "gone"


def test_what_changed_between_two_revisions() -> None:
    """Values of the config by their path, the facts and the memory that follow, and nothing else."""
    old, new = (
        revision("a" * 40),
        revision("b" * 40, num_hidden_layers=3, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    )
    ((before, after, found),) = changed([old, new])
    assert (before, after) == ("org/one@aaaaaaaaaaaa", "org/one@bbbbbbbbbbbb")
    said = {(one.kind, one.name): (one.before, one.after) for one in found}
    assert said["config", "config.json#num_hidden_layers"] == ("2", "3")
    assert said["config", "config.json#rope_scaling.factor"] == ("2.0", "4.0")
    assert said["facts", "layers"] == ("2", "3")
    assert said["facts", "cache layout"] == ("2 full", "3 full")
    assert said["memory", "kv_cache"][0] != said["memory", "kv_cache"][1]
    assert {name for kind, name in said if kind == "config"} == {
        "config.json#num_hidden_layers",
        "config.json#rope_scaling.factor",
    }
    text = to_text([old, new])
    assert "What changed from org/one@aaaaaaaaaaaa to org/one@bbbbbbbbbbbb" in text
    assert "config.json#num_hidden_layers: 2 → 3" in text


def test_tensors_and_files_that_come_and_go_are_told() -> None:
    """A name that was not there before, and one that is gone."""
    old = made(CONFIG, {"model.norm.weight": ("BF16", (64,)), "old.weight": ("BF16", (3, 4))})
    new = made(CONFIG, {"model.norm.weight": ("F32", (64,)), "new.weight": ("BF16", (5,))})
    found = changes(*((one, audit_snapshot(one, Workload())) for one in (old, new)))
    said = {one.name: (one.before, one.after) for one in found if one.kind == "tensors"}
    assert said == {
        "old.weight": ("1 × BF16 [3 × 4]", None),
        "new.weight": (None, "1 × BF16 [5]"),
        "model.norm.weight": ("1 × BF16 [64]", "1 × F32 [64]"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_nothing_changes_between_the_same(name: str) -> None:
    """A revision compared with itself."""
    one = compared(snapshot_of(name))
    assert [found for _, _, found in changed([one, one])] == [()]
    assert "nothing that an audit reads" in to_text([one, one])


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5), st.one_of(st.integers(), st.text(max_size=5), st.none()), max_size=5
    ),
    st.dictionaries(
        st.text(min_size=1, max_size=5), st.one_of(st.integers(), st.text(max_size=5), st.none()), max_size=5
    ),
)
def test_changes_turn_around(first: dict[str, Any], second: dict[str, Any]) -> None:
    """From the second to the first is the same list with before and after exchanged, whatever a config holds."""
    one, two = (made({"extra": config}) for config in (first, second))
    reports = [(snapshot, audit_snapshot(snapshot, Workload())) for snapshot in (one, two)]
    there = {(change.kind, change.name): (change.before, change.after) for change in changes(*reports)}
    back = {(change.kind, change.name): (change.after, change.before) for change in changes(*reversed(reports))}
    assert there == back


def test_json_holds_every_document() -> None:
    """Each subject is what an audit of it prints."""
    subjects = [compared(snapshot_of("gpt2")), compared(snapshot_of("t5-small"))]
    document = json.loads(to_json(subjects))
    assert document["schema_version"] == 1
    wires = [to_wire(one.audited[1]) for one in subjects if one.audited]
    assert document["subjects"] == json.loads(json.dumps(wires))
    assert document["changes"] == []


def test_strangers_words_are_no_markup() -> None:
    """Names are escaped in every text."""
    hostile = compared(replace(made({"model_type": "\x1b[2J", "a\x07b": "\x1b"}), repo_id=HOSTILE))
    other = compared(replace(made({"model_type": "llama", "c|d": "<b>"}), repo_id=HOSTILE))
    for text in (to_text([hostile, other]), to_markdown([hostile, other])):
        assert not any(not character.isprintable() and character != "\n" for character in text)
    assert "<b>" not in to_markdown([hostile, other])
