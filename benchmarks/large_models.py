"""What an audit of a very large repository takes on a local Hub: a thousand shards, and a million tensors.

    python benchmarks/large_models.py [--tensors 1000000] [--shards 1000]

Prints seconds, CPU seconds, the most memory that the process held, and its requests; each model once with all headers in one answer of the Hub, and once at a
tag, where the index and the header of each shard are read. Fails where the parameters are not those that were written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from local_hub import LocalHub, LocalRepo  # noqa: E402
from small_repos import CONFIG, shards_of  # noqa: E402

#: A process may take so much for each tensor, beside what it takes for a small model.
MOST_BYTES_A_TENSOR = 3_000


def model(repo_id: str, shards: int, tensors: int) -> LocalRepo:
    """A mixture of experts of that many matrices of 8 × 4, as such checkpoints name them."""
    each = tensors // shards
    parts = [
        [
            (
                f"model.layers.{at // 768}.mlp.experts.{at // 3 % 256}.{('gate', 'up', 'down')[at % 3]}_proj.weight",
                "BF16",
                (8, 4),
            )
            for at in range(shard * each, (shard + 1) * each)
        ]
        for shard in range(shards)
    ]
    return LocalRepo(repo_id, {"config.json": json.dumps(CONFIG), **shards_of(parts)}, tags={"v1": "main"})


def measured(hub: LocalHub, name: str, parameters: int) -> float:
    """One audit in a process of its own, with an empty cache; prints its line, and returns the memory it took in bytes."""
    hub.reset_log()
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": home, "HF_HUB_DISABLE_TELEMETRY": "1"}
        started = time.monotonic()
        words = [sys.executable, "-m", "hubaudit", name, "--json", "-o", f"{home}/report.json"]
        process = subprocess.Popen(words, env=environment)
        memory, (ended, status, used) = 0, os.wait4(process.pid, os.WNOHANG)
        while not ended:
            memory = max(memory, held_bytes(process.pid))
            time.sleep(0.02)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        seconds = time.monotonic() - started
        if os.waitstatus_to_exitcode(status):
            sys.exit(f"{name}: exit code {os.waitstatus_to_exitcode(status)}")
        facts = json.loads(Path(home, "report.json").read_text(encoding="utf-8"))["facts"]
    if facts["parameters"]["total"] != parameters:
        sys.exit(f"{name}: {facts['parameters']['total']} parameters, not {parameters}")
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{name:<24}{seconds:>9.1f} s{cpu:>9.1f} s{memory / 2**20:>9.0f} MiB{len(hub.requests):>9,} requests",
        flush=True,
    )
    return memory


def held_bytes(process_id: int) -> int:
    """The most that the process has held (Linux). What wait4 says begins with what its parent held."""
    for line in Path(f"/proc/{process_id}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    """Measure, and print; 1 where an audit takes more memory than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=1_000)
    asked = parser.parse_args()
    few = asked.shards * 10
    wide, deep = model("large/many-shards", asked.shards, few), model("large/many-tensors", 20, asked.tensors)
    with LocalHub(wide, deep, quotas=dict.fromkeys(("api", "resolvers", "pages"), 10**7)) as hub:
        print(f"{'':<24}{'':>9}  {'CPU':>9}  {'memory':>9}")
        for name in ("large/many-shards", "large/many-shards@v1"):
            measured(hub, name, few * 32)
        largest = max(
            measured(hub, name, asked.tensors * 32) for name in ("large/many-tensors", "large/many-tensors@v1")
        )
    allowed = 150 * 2**20 + MOST_BYTES_A_TENSOR * asked.tensors
    print(f"at most {allowed / 2**20:.0f} MiB")
    return 0 if largest <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
