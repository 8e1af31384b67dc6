"""What lasts of a run: rows on the disk before they count, whatever ends the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from batch_rows import outcome
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.batch.journal import JOURNAL, Journal, Rows
from hubaudit.batch.plan import Item, Plan
from hubaudit.errors import NotFoundError, UsageError
from hubaudit.types import Workload

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan()


def claimed(journal: Journal, *names: str, again: tuple[str, ...] = ("later",)) -> list[str]:
    """Those of ``names`` that are still to be done."""
    return [name for name in names if journal.claim(Item(name=name), again)]


def test_rows_come_back_in_the_order_of_the_list(tmp_path: Path) -> None:
    """Not in that of coming; each name once, with its last row."""
    with Journal(tmp_path, PLAN) as journal:
        journal.append([outcome("c", position=2), outcome("a", position=0, state="later")])
        journal.append([outcome("b", position=1)])
        journal.append([outcome("a", position=0)])
    with Rows(tmp_path) as rows:
        assert [(row["name"], row["state"]) for row in rows] == [("a", "audited"), ("b", "audited"), ("c", "audited")]
        assert rows.index.counts() == {"audited": 3}


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    """Nor is a name that stands in the list twice; failures that pass are."""
    with Journal(tmp_path, PLAN) as journal:
        assert claimed(journal, "a", "a", "b", "c", "d") == ["a", "b", "c", "d"]
        journal.append([outcome("a"), outcome("b", state="later"), outcome("c", state="access")])
        assert claimed(journal, "a", "b", "c") == []
    with Journal(tmp_path, PLAN) as journal:
        assert claimed(journal, "a", "b", "c", "d", "b") == ["b", "d"]
    with Journal(tmp_path, PLAN) as journal:
        assert claimed(journal, "a", "b", "c", again=("later", "access")) == ["b", "c"]
    with Journal(tmp_path, PLAN) as journal:
        assert claimed(journal, "a", "b", "c", again=()) == []


@settings(max_examples=25)
@given(cut=st.integers(0, 600))
def test_a_torn_tail_costs_its_row_only(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Wherever a power cut ends the file, every whole line before it counts, and the next row is whole again."""
    folder = tmp_path_factory.mktemp("torn")
    with Journal(folder, PLAN) as journal:
        journal.append([outcome(name) for name in "abcd"])
    whole = (folder / JOURNAL).read_bytes()
    kept = whole[: max(0, len(whole) - cut)]
    (folder / JOURNAL).write_bytes(kept)
    lines = kept.count(b"\n")
    with Journal(folder, PLAN) as journal:
        assert journal.torn_bytes == len(kept) - kept.rfind(b"\n") - 1
        assert claimed(journal, *"abcd") == list("abcd"[lines:])
        journal.append([outcome("e", position=9)])
    with Rows(folder) as rows:
        assert [row["name"] for row in rows] == [*"abcd"[:lines], "e"]


@pytest.mark.parametrize(
    "hole", [b"\0" * 5000 + b"\n", b'{"name": "x"}\n', b"[" * 100_000 + b"\n", b'{"a": 1, \xff}\n']
)
def test_a_block_that_never_reached_the_disk(hole: bytes, tmp_path: Path) -> None:
    """A line of zeros in the middle, as a power cut can leave, is passed over; its model is done again."""
    with Journal(tmp_path, PLAN) as journal:
        journal.append([outcome("a")])
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(hole)
    with Journal(tmp_path, PLAN) as journal:
        journal.append([outcome("b", position=1)])
        assert claimed(journal, "a", "b", "x") == ["x"]
    with Rows(tmp_path) as rows:
        assert [row["name"] for row in rows] == ["a", "b"]


def test_each_row_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`append` writes whole lines, then waits for the disk, then returns."""
    happened: list[str] = []
    with Journal(tmp_path, PLAN) as journal:
        write, fsync = os.write, os.fsync
        monkeypatch.setattr(os, "write", lambda file, data: happened.append("write") or write(file, data[:40]))
        monkeypatch.setattr(os, "fsync", lambda file: happened.append("sync") or fsync(file))
        journal.append([outcome("a"), outcome("b")])
        monkeypatch.undo()
    assert happened[0] == "write"
    assert happened[-1] == "sync"
    assert happened.count("sync") == 1
    assert len((tmp_path / JOURNAL).read_text().splitlines()) == 2


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it took of the row is removed by the next run."""
    with Journal(tmp_path, PLAN) as journal:
        write = os.write

        def full(file: int, data: bytes) -> int:
            if len(data) < 60:
                raise OSError(28, "No space left on device")
            return write(file, bytes(data)[:60])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(UsageError, match="No space left"):
            journal.append([outcome("a")])
        monkeypatch.undo()
    with Journal(tmp_path, PLAN) as journal:
        assert journal.torn_bytes
        assert claimed(journal, "a") == ["a"]


def test_two_runs_on_one_directory_refuse(tmp_path: Path) -> None:
    """The second is told whose it is; a process that was killed holds nothing."""
    with Journal(tmp_path, PLAN), pytest.raises(UsageError, match=rf"another run \(process {os.getpid()}\)"):
        Journal(tmp_path, PLAN)
    code = f"""
import os, signal
from pathlib import Path
from hubaudit.batch.journal import Journal
from hubaudit.batch.plan import Plan
journal = Journal(Path({str(tmp_path)!r}), Plan())
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with Journal(tmp_path, PLAN) as journal:
        assert claimed(journal, "a") == ["a"]


def test_another_plan_is_refused(tmp_path: Path) -> None:
    """Rows of two workloads would stand in one table."""
    with Journal(tmp_path, PLAN):
        pass
    with pytest.raises(UsageError, match="other workloads or devices"):
        Journal(tmp_path, Plan(workloads=(Workload(batch_size=8),)))
    with Journal(tmp_path, PLAN):
        pass


def test_a_directory_that_holds_no_run(tmp_path: Path) -> None:
    """Reading it is an error with a hint; a file in its place too."""
    with pytest.raises(NotFoundError, match="holds no batch"):
        Rows(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        Journal(tmp_path / "file", PLAN)
    (tmp_path / "plan.json").write_text("nonsense")
    with pytest.raises(UsageError, match="no plan of a batch"):
        Journal(tmp_path, PLAN)


def test_a_row_is_one_line_of_plain_json(tmp_path: Path) -> None:
    """The envelope says what, when and how it ended; the document is the wire contract's."""
    with Journal(tmp_path, PLAN) as journal:
        journal.append([outcome("a\n\u2028\ud800", position=3, state="never")])
    (line,) = (tmp_path / JOURNAL).read_bytes().split(b"\n")[:-1]
    assert line.isascii()
    row = json.loads(line)
    assert (row["name"], row["position"], row["state"]) == ("a\n\u2028\ud800", 3, "never")
