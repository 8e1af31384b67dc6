"""Problems of which there are more than anyone reads."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from fuzz.reports import FORMS
from small_repos import CONFIG, INDEX
from weight_bytes import safetensors

from hubaudit.auditing import audit_snapshot
from hubaudit.findings import MOST_OF_A_RULE
from hubaudit.hub import fetch
from hubaudit.hub.bundle import read_bundle, write_bundle
from hubaudit.hub.problems import MOST_OF_A_KIND, told
from hubaudit.report.sarif import to_sarif
from hubaudit.types import ReadProblem, RepoSnapshot, Workload

if TYPE_CHECKING:
    from pathlib import Path


def problems(count: int, kind: str = "missing") -> list[ReadProblem]:
    """So many of one kind."""
    return [ReadProblem(path=f"{at:05}.safetensors", reason="gone", kind=kind) for at in range(count)]  # type: ignore[arg-type]


def test_of_each_kind_a_hundred() -> None:
    """The others are counted, none is lost without a word, and the config's own is always among them."""
    few = problems(MOST_OF_A_KIND) + problems(3, "truncated")
    assert told(few) == tuple(few)
    config = ReadProblem(path="config.json", reason="no JSON", kind="unreadable")
    many = told([*problems(250), *problems(101, "unreadable"), config])
    assert len(many) == 2 * MOST_OF_A_KIND + 1
    assert many[MOST_OF_A_KIND - 1].reason == "gone; and 150 more files like it"
    assert (many[-1].path, many[-1].reason) == ("config.json", "no JSON; and 1 more files like it")


def test_an_index_of_nothing(tmp_path: Path) -> None:
    """20,000 shards that are not there: a report in bounded time and of bounded length, from the folder and from its bundle."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(safetensors({"w": ("F32", (2, 2))}))
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {f"w{at}": f"s{at}.safetensors" for at in range(20_000)}}))
    began = time.process_time()
    snapshot = fetch(str(tmp_path))
    report = audit_snapshot(snapshot, Workload())
    missing = [finding for finding in report.findings if finding.rule == "missing-shard"]
    assert len(missing) == MOST_OF_A_KIND
    assert "19,900 more files like it" in missing[-1].message
    for form in FORMS[1:]:
        assert len(form(report)) < 150_000
    assert time.process_time() - began < 10
    many = RepoSnapshot(
        repo_id="a/b", revision=None, commit=None, source="local", configs={"config.json": CONFIG}, problems=tuple(problems(20_000))
    )  # fmt: skip
    write_bundle(many, tmp_path / "b.json")
    assert len(read_bundle(tmp_path / "b.json").problems) == MOST_OF_A_KIND


def test_a_card_with_a_claim_on_every_line(tmp_path: Path) -> None:
    """Of each rule a hundred findings are told, and how many more there are."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(safetensors({"w": ("F32", (2, 2))}))
    (tmp_path / "README.md").write_text("Parameters: 900B\n" * 2_000)
    report = audit_snapshot(fetch(str(tmp_path)), Workload())
    found = [finding for finding in report.findings if finding.rule == "card-parameters"]
    assert len(found) == MOST_OF_A_RULE
    assert "and 1,900 more like it" in found[-1].message
    assert len(to_sarif([report])) < 300_000
