"""Processes that audit for a batch: lost ones are replaced, and none outlives the run, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from multiprocessing import active_children
from typing import TYPE_CHECKING

import pytest
from small_repos import one_file

from hubaudit.batch.journal import Rows
from hubaudit.batch.workers import Workers

if TYPE_CHECKING:
    from pathlib import Path

    from local_hub import LocalHub


def test_a_lost_process_ends_no_run() -> None:
    """What it had under way says so; the next call has a new pool. At the end no process is left."""
    workers = Workers(1)
    with pytest.raises(BrokenExecutor):
        workers.submit(os._exit, 1).result(timeout=120)
    assert workers.submit(os.getpid).result(timeout=120) != os.getpid()
    workers.close()
    assert not active_children()


def test_a_process_that_is_busy_is_not_waited_for() -> None:
    """Ctrl-C ends the run at once, also where a question to the Hub has a minute left."""
    workers = Workers(1)
    assert workers.submit(os.getpid).result(timeout=120)
    sleeping = workers.submit(time.sleep, 3600)
    workers.close()
    assert sleeping.done()


@pytest.mark.usefixtures("heeding_interrupts")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_no_process_outlives_the_run(number: signal.Signals, tmp_path: Path, local_hub: LocalHub) -> None:
    """A worker that did would hold standard error open, and, as a copy of its parent, the lock on the run's directory: nobody could go on with it."""
    names = [f"org/m{at}" for at in range(12)]
    for name in names:
        local_hub.add(one_file(name))
    local_hub.fault(
        "timeout", r"org/m([6-9]|1\d)", seconds=600
    )  # so that it is not over before the signal comes, and a worker is busy
    (tmp_path / "list.txt").write_text("\n".join(names))
    words = [sys.executable, "-m", "hubaudit", "batch", str(tmp_path / "list.txt"), "-o", str(tmp_path / "run")]
    words += ["--executor", "processes", "-j", "1", "--format", "none"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    journal = tmp_path / "run" / "journal.jsonl"
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") == 6) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    said = process.communicate(timeout=120)[1]  # ends with the last process that could still write
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in said
    assert number == signal.SIGKILL or said.endswith("error: interrupted\n")  # and no word of semaphores that were left
    local_hub.clear_faults()
    again = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0, again.stderr
    with Rows(tmp_path / "run") as rows:
        assert [(row["name"], row["state"]) for row in rows] == [(name, "audited") for name in names]
