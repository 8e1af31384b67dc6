"""A batch of many models on a local Hub that fails at one request in twenty, killed in the middle and resumed: what is lost, and what it takes.

    python benchmarks/load.py [--models 10000] [--faults 0.05]

Prints a record: seconds, memory after so many rows, requests and faults of each kind, and how the rows stand. Fails where a model is lost, is audited
twice into the journal, or has another report than it has without faults. The models are small (one file or four shards), so that what is measured is
the batch and not the headers.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from local_hub import LocalHub  # noqa: E402
from small_repos import PARAMETERS, one_file, sharded  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

#: What goes wrong, in what part of the faults. A 429 stops the whole batch for two seconds, and silence a connection for one, so they are rare.
MIX: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("status", {"status": 500}, 0.24),
    ("status", {"status": 503, "html": False}, 0.2),
    ("reset", {}, 0.18),
    ("close", {}, 0.18),
    ("truncate", {}, 0.185),
    ("timeout", {"seconds": 60}, 0.01),
    ("status", {"status": 429, "reset_seconds": 1}, 0.005),
)
PLENTY = {"api": 10**7, "resolvers": 10**7, "pages": 10**7}


@dataclass
class Record:
    """What a run came to. Memory in MiB by rows written; rows by state; ``doubled`` names with two audited rows."""

    models: int
    seconds: list[float] = field(default_factory=list)
    memory_mib: dict[int, float] = field(default_factory=dict)
    peak_mib: list[float] = field(default_factory=list)
    rows_at_kill: int = 0
    states: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        """Whether every model has its one right row."""
        return not (self.lost or self.doubled or self.wrong) and self.states["audited"] == self.models


def hub_of(models: int, share: float) -> LocalHub:
    """Every tenth model in four shards, and rules that spoil a share of all requests, drawn with a fixed seed."""
    hub = LocalHub(quotas=PLENTY)
    for number in range(models):
        make = sharded if number % 10 == 9 else one_file
        hub.add(make(f"load/model-{number:05}"))
    left = 1.0
    for kind, options, part in MIX if share else ():
        chance = share * part / left  # a rule sees only what the rules before it let pass
        left -= share * part
        hub.fault(kind, _drawn(random.Random(f"{kind}{options}"), chance), **options)  # noqa: S311
    return hub


def _drawn(source: random.Random, chance: float) -> Callable[[object], bool]:
    return lambda _: source.random() < chance


def measured(models: int, share: float, folder: Path) -> Record:
    """Run until half of the rows are there, kill it, and run the same command until nothing is left for later."""
    record = Record(models=models)
    names = folder / "names.txt"
    names.write_text("".join(f"load/model-{number:05}\n" for number in range(models)), encoding="utf-8")
    words = [sys.executable, "-m", "hubaudit", "batch", str(names), "-o", str(folder / "run"), "--format", "none", "-q"]
    with hub_of(models, share) as hub:
        environment = os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home")}
        environment |= {"HF_HUB_DOWNLOAD_TIMEOUT": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        journal = folder / "run" / "journal.jsonl"
        record.rows_at_kill = _run(words, environment, hub, journal, record, kill_at=models // 2)
        for _ in range(5):
            _run(words, environment, hub, journal, record)
            if "later" not in _last_states(journal).values():
                break
    _count(journal, record)
    return record


def _run(
    words: list[str], environment: dict[str, str], hub: LocalHub, journal: Path, record: Record, *, kill_at: int = 0
) -> int:
    """One process, its memory looked at as rows come; the rows that there are when it ends."""
    started = time.monotonic()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    marks = [
        mark for mark in (100, 1_000, 2_000, 5_000, 7_500, 10_000, 20_000, 50_000, 100_000) if mark <= record.models
    ]
    rows, at, peak = 0, 0, 0.0
    while process.poll() is None:
        time.sleep(0.1)
        added, at = _new_lines(journal, at)
        rows += added
        now, peak_now = _memory_mib(process.pid)
        peak = max(peak, peak_now)
        record.memory_mib |= {mark: now for mark in marks if rows >= mark and mark not in record.memory_mib and now}
        if kill_at and rows >= kill_at:
            process.send_signal(signal.SIGKILL)
            process.wait()
        _forget(hub, record)
    record.seconds.append(time.monotonic() - started)
    record.peak_mib.append(peak)
    _forget(hub, record)
    return rows + _new_lines(journal, at)[0]


def _new_lines(journal: Path, at: int) -> tuple[int, int]:
    if not journal.exists():
        return 0, 0
    with journal.open("rb") as file:
        file.seek(at)
        text = file.read()
    return text.count(b"\n"), at + len(text)


def _memory_mib(process_id: int) -> tuple[float, float]:
    """What the process holds now, and has held at most (Linux; 0 elsewhere, or once it has ended)."""
    try:
        text = Path(f"/proc/{process_id}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0, 0.0
    told = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("Vm")}
    return told.get("VmRSS", 0.0), told.get("VmHWM", 0.0)


def _forget(hub: LocalHub, record: Record) -> None:
    """Count the requests, and let the Hub forget them: it is to hold no more than the batch."""
    if len(hub._log) < 5_000 and not hub.stopping.is_set() and record.models > 5_000:
        return
    requests = hub.requests
    hub.reset_log()
    record.requests += len(requests)
    record.faults.update(f"{one.fault} {one.status or ''}".strip() for one in requests if one.fault)


def _last_states(journal: Path) -> dict[str, str]:
    with journal.open("rb") as file:
        return {row["name"]: row["state"] for row in map(json.loads, file)}


def _count(journal: Path, record: Record) -> None:
    """Every row held against what is known of the models: they all have the same parameters, counted by hand."""
    audited: Counter[str] = Counter()
    with journal.open("rb") as file:
        for row in map(json.loads, file):
            if row["state"] != "audited":
                continue
            audited[row["name"]] += 1
            facts = row["document"]["facts"]
            record.wrong += facts["parameters"]["total"] != PARAMETERS or facts["layers"] != 4
    states = _last_states(journal)
    record.states = Counter(states.values())
    record.lost = record.models - len(states)
    record.doubled = sum(count > 1 for count in audited.values())


def main() -> int:
    """Measure, and print the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--faults", type=float, default=0.05, help="share of the requests that fail")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = measured(asked.models, asked.faults, Path(folder))
    spoilt = sum(record.faults.values())
    print(
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()} processors"
    )
    print(
        f"{record.models:,} models, {record.requests:,} requests, {spoilt:,} of them spoilt ({spoilt / record.requests:.1%}): {dict(record.faults)}"
    )
    print(
        f"seconds of each run: {', '.join(f'{one:.0f}' for one in record.seconds)}; killed at {record.rows_at_kill:,} rows"
    )
    print(
        f"memory by rows, MiB: { ({rows: round(mib) for rows, mib in record.memory_mib.items()}) }; peaks {[round(one) for one in record.peak_mib]}"
    )
    print(f"rows: {dict(record.states)}; lost {record.lost}, doubled {record.doubled}, wrong {record.wrong}")
    return 0 if record.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
