"""Journals of a batch, its plan, and the lists of names that it is made of: what a power cut or somebody's editor left of them."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from batch_rows import outcome
from fuzz.registry import target

from hubaudit.batch.inputs import items_of
from hubaudit.batch.journal import JOURNAL, PLAN, Journal, Rows
from hubaudit.batch.plan import Item, Plan
from hubaudit.errors import HubauditError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = (
    b'"name":',
    b'"state":"audited"',
    b'"position":',
    b'"document":{',
    b"\n",
    b"\0" * 16,
    b"\\ud800",
    b"NaN",
    b"[[[[[[",
    b"1e400",
    b"99999999999999999999",
)


@cache
def _folder() -> Path:
    """On a file system in memory where there is one: every row is waited for until it is on the disk."""
    memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a folder of its own there
    return Path(tempfile.mkdtemp(prefix="hubaudit-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))


@cache
def _written() -> bytes:
    with Journal(_folder() / "seed", Plan()) as journal:
        journal.append([outcome("a/b"), outcome("c/d", position=1, state="later"), outcome("a/b", position=2)])
    return (_folder() / "seed" / JOURNAL).read_bytes()


def _journals() -> Iterator[bytes]:
    yield _written()
    yield _written()[:-20]
    yield b""


@target("journal", allowed=(HubauditError,), seeds=_journals, dictionary=_WORDS)
def journal(data: bytes) -> None:
    """A run goes on with it, and its rows are read."""
    folder = _folder() / "run"
    folder.mkdir(exist_ok=True)
    (folder / JOURNAL).write_bytes(data)
    with Journal(folder, Plan()) as opened:
        opened.claim(Item(name="a/b", position=0), ("later",))
    with Rows(folder) as rows:
        assert all(isinstance(row, dict) for row in rows)
        rows.find("a/b")


def _plans() -> Iterator[bytes]:
    with Journal(_folder() / "plan", Plan()):
        yield (_folder() / "plan" / PLAN).read_bytes()
    yield b"{}"


@target("journal-plan", allowed=(HubauditError,), seeds=_plans, dictionary=(b'"hubaudit_batch"', b"NaN", b"[[[["))
def plan(data: bytes) -> None:
    """The plan beside a journal."""
    folder = _folder() / "planned"
    folder.mkdir(exist_ok=True)
    (folder / PLAN).write_bytes(data)
    with Journal(folder, Plan()):
        pass
    with Rows(folder):
        pass


def _lists() -> Iterator[bytes]:
    yield b"a/b\n# remark\nc/d@main  # why\n"
    yield b"repo_id,other\r\na/b,1\r\n"
    yield json.dumps({"repo_id": "a/b"}).encode() + b"\n"


@target(
    "batch-list", allowed=(UsageError,), seeds=_lists, dictionary=(b"repo_id", b"\r\n", b'"', b"\xef\xbb\xbf", b"\0")
)
def names(data: bytes) -> None:
    """A list of names as lines, as a table and as JSON lines."""
    for ending in ("txt", "csv", "tsv", "jsonl"):
        path = _folder() / f"list.{ending}"
        path.write_bytes(data)
        with suppress(UsageError):  # one kind of list is no other; what is no error of ours escapes
            list(items_of([str(path)]))
