"""A batch on a real Dask cluster of several processes: one shared budget, and a worker killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from local_hub import LocalHub
from small_repos import one_file

from hubaudit.batch.journal import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(find_spec("distributed") is None, reason="needs the extra `dask`"),
]

CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=3, threads_per_worker=2, processes=True, dashboard_address=None, host="127.0.0.1")
    pids = [str(worker.pid) for worker in cluster.workers.values()]
    print(cluster.scheduler_address.removeprefix("tcp://"), *pids, flush=True)
    sys.stdin.read()
    cluster.close()
"""


@contextmanager
def cluster(hub: LocalHub, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Three processes of two threads each, that ask ``hub``: the scheduler's address, and the processes."""
    program = folder / "cluster.py"
    program.write_text(CLUSTER)
    process = subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"HF_ENDPOINT": hub.endpoint},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address, *pids = process.stdout.readline().split()
        yield address, [int(pid) for pid in pids]
    finally:
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()


def started(hub: LocalHub, folder: Path, names: list[str], address: str) -> subprocess.Popen[str]:
    """A batch over the cluster."""
    (folder / "list.txt").write_text("\n".join(names))
    words = [
        "batch",
        str(folder / "list.txt"),
        "-o",
        str(folder / "run"),
        "--executor",
        f"dask://{address}",
        "--format",
        "none",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "hubaudit", *words],
        env=os.environ | {"HF_ENDPOINT": hub.endpoint},
        stderr=subprocess.PIPE,
        text=True,
    )


def states(folder: Path) -> Counter[str]:
    """How many rows ended in which way, each name once."""
    with Rows(folder) as rows:
        found = [(row["name"], row["state"]) for row in rows]
        troubles = [(row["name"], row["document"]["error"]) for row in rows if row["state"] != "audited"]
    assert len(dict(found)) == len(found)
    assert not troubles
    return Counter(state for _, state in found)


def test_a_worker_killed_in_the_middle(tmp_path: Path) -> None:
    """Nothing is lost and nothing doubled: each model has one audited row, and one line in the journal."""
    names = [f"org/m{number}" for number in range(80)]
    with LocalHub(*map(one_file, names), latency_seconds=0.1) as hub, cluster(hub, tmp_path) as (address, pids):
        run = started(hub, tmp_path, names, address)
        journal = tmp_path / "run" / "journal.jsonl"
        deadline = time.monotonic() + 120
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= 15) and time.monotonic() < deadline:
            time.sleep(0.05)
        before = journal.read_bytes().count(b"\n")
        os.kill(pids[0], signal.SIGKILL)
        said = run.communicate(timeout=240)[1]
    assert states(tmp_path / "run") == {"audited": 80}
    assert run.returncode == 0, said
    assert 15 <= before < 80
    assert journal.read_bytes().count(b"\n") == 80


def test_one_budget_for_all_workers(tmp_path: Path) -> None:
    """A Hub that grants 40 API requests in 5 seconds is never asked for more by six threads in three processes."""
    names = [f"org/m{number}" for number in range(70)]
    quotas = {"api": 40}
    with (
        LocalHub(*map(one_file, names), quotas=quotas, window_seconds=5) as hub,
        cluster(hub, tmp_path) as (address, _),
    ):
        run = started(hub, tmp_path, names, address)
        said = run.communicate(timeout=240)[1]
        refused = [request for request in hub.requests if request.status == 429]
    assert states(tmp_path / "run") == {"audited": 70}
    assert run.returncode == 0, said
    assert refused == []


def test_no_cluster_is_said(tmp_path: Path) -> None:
    """An address where nobody listens is a usage error with a hint."""
    with LocalHub() as hub:
        run = started(hub, tmp_path, ["org/one"], "127.0.0.1:9")
        said = run.communicate(timeout=120)[1]
    assert run.returncode == 2
    assert "error: no Dask scheduler at `dask://127.0.0.1:9`" in said
    assert "Traceback" not in said
