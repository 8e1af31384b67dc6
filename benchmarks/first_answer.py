"""Seconds and requests to the first answer, against the leading peer on the same local Hub.

    python benchmarks/first_answer.py [--runs 5] [--latency 0.08] [--ours PYTHON] [--peers PYTHON]

Needs hubaudit and hf-mem (the peer), each in an environment of its own, as their users install them, or both in this one. Whole processes are
timed, in turn, each with an empty cache, after one run of each that does not count; `warm` is the second audit of the same commit. hubaudit's
answer holds the KV cache and all estimates, the peer's the weights only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from local_hub import LocalHub  # noqa: E402
from local_repo import repo_from_snapshot  # noqa: E402

from hubaudit.hub.bundle import read_bundle  # noqa: E402

MODELS = {
    "one file": "qwen2-0.5b-instruct",
    "4 shards": "llama-3.1-8b",
    "163 shards": "deepseek-v3",
}
# What the installed command runs.
OURS = "from hubaudit.cli import main; main()"
# The peer has the Hub's address written in its code; this sends its requests to the local one and changes nothing else.
PEER = """
import os, sys, httpx2
build = httpx2.AsyncClient.build_request
def build_request(self, method, url, **rest):
    return build(self, method, str(url).replace("https://huggingface.co", os.environ["HF_ENDPOINT"]), **rest)
httpx2.AsyncClient.build_request = build_request
from hf_mem.cli import main
sys.argv = ["hf-mem", "--model-id", sys.argv[1], "--json-output"]
main()
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One process: how long it took, and what it asked of the Hub."""

    seconds: float
    requests: int


def run(command: list[str], hub: LocalHub, home: Path) -> Run:
    """Run ``command`` against ``hub``, with ``home`` as its cache."""
    hub.reset_log()
    environment = os.environ | {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return Run(time.perf_counter() - started, len(hub.requests))


def measure(name: str, bundle: str, arguments: argparse.Namespace) -> None:
    """Print one row: medians of both programs and the ratio of the pairs."""
    repo = repo_from_snapshot(read_bundle(ROOT / "fixtures" / "bundles" / f"{bundle}.json.gz"))
    ours, warm, theirs = [], [], []
    with LocalHub(repo, latency_seconds=arguments.latency) as hub:
        audit = [arguments.ours, "-c", OURS, repo.repo_id, "--json"]
        peer = [arguments.peers, "-c", PEER, repo.repo_id]
        for first in (
            audit,
            peer,
        ):  # the local Hub makes what it serves when it is first asked, half a second of work for 163 headers
            with tempfile.TemporaryDirectory() as home:
                run(first, hub, Path(home))
        for _ in range(arguments.runs):
            with tempfile.TemporaryDirectory() as home:
                ours.append(run(audit, hub, Path(home)))
                warm.append(run(audit, hub, Path(home)))
            with tempfile.TemporaryDirectory() as home:
                theirs.append(run(peer, hub, Path(home)))
    ratios = [their.seconds / our.seconds for our, their in zip(ours, theirs, strict=True)]
    print(
        f"{name:<12}{_cell(ours)}{_cell(warm)}{_cell(theirs)}"
        f"{statistics.median(ratios):>8.2f} x  ({min(ratios):.2f} – {max(ratios):.2f})"
    )


def _cell(runs: list[Run]) -> str:
    seconds = statistics.median(run.seconds for run in runs)
    return f"{seconds:>8.2f} s{statistics.median(run.requests for run in runs):>6.0f} req"


def main() -> None:
    """Measure every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--latency", type=float, default=0.08, help="seconds each request waits")
    parser.add_argument("--ours", default=sys.executable, help="the interpreter that has hubaudit; by default this one")
    parser.add_argument("--peers", default=sys.executable, help="the interpreter that has hf-mem; by default this one")
    arguments = parser.parse_args()
    print(
        f"{arguments.runs} runs each, {arguments.latency * 1000:.0f} ms a request, medians; ratio = peer's seconds / ours"
    )
    print(f"{'':<12}{'hubaudit cold':>20}{'hubaudit warm':>20}{'hf-mem':>20}{'ratio':>10}")
    for name, bundle in MODELS.items():
        measure(name, bundle, arguments)


if __name__ == "__main__":
    main()
