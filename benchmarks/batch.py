"""Models a second, and requests a model, of a batch against the leading peer run model by model on the same local Hub.

    python benchmarks/batch.py [--models 1000] [--peer-models 12] [--cached 1000] [--latency 0.08]

Needs hubaudit and hf-mem (the peer) in the same environment. The peer is timed twice: as the program that it is, once for each model, and as
a library in one process, which saves it the imports. Its answer holds the weights only; hubaudit's holds facts, KV cache and the whole
estimate, and every row is fsynced. The local Hub grants more requests than the real one does, so that what is measured is the programs and
not the quota; docs/scale.md says what the real quotas allow.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from local_hub import LocalHub, LocalRepo  # noqa: E402
from local_repo import repo_from_snapshot  # noqa: E402

from hubaudit.hub.bundle import read_bundle  # noqa: E402

#: What a list of models looks like: mostly one file, some of two to four shards.
MIX = ("qwen2-0.5b-instruct", "qwen3-0.6b", "bert-base-uncased", "gpt2", "llama-3.1-8b", "phi-3-mini-4k-instruct", "gemma-2-2b-it", "mistral-7b-v0.1")  # fmt: skip
# The peer has the Hub's address written in its code; this sends its requests to the local one and changes nothing else.
SENT_HERE = """
import asyncio, os, sys, httpx2
build = httpx2.AsyncClient.build_request
def build_request(self, method, url, **rest):
    return build(self, method, str(url).replace("https://huggingface.co", os.environ["HF_ENDPOINT"]), **rest)
httpx2.AsyncClient.build_request = build_request
"""
PROGRAM = f"""{SENT_HERE}
from hf_mem.cli import main
sys.argv = ["hf-mem", "--model-id", sys.argv[1], "--json-output"]
main()
"""
LIBRARY = f"""{SENT_HERE}
from hf_mem import run
for name in sys.argv[1:]:
    run(model_id=name)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One or several processes over some models."""

    models: int
    seconds: float
    cpu_seconds: float
    requests: int

    @property
    def per_second(self) -> float:
        """Models a second."""
        return self.models / self.seconds

    def line(self, name: str, against: Run | None = None) -> str:
        """As it is printed."""
        ratio = f"{self.per_second / against.per_second:>9.1f} x" if against else ""
        return f"{name:<44}{self.models:>6}{self.seconds:>9.2f}{self.cpu_seconds / self.models * 1000:>10.1f}{self.requests / self.models:>10.2f}{self.per_second:>10.2f}{ratio}"


def hub_of(count: int, latency_seconds: float) -> LocalHub:
    """A Hub with so many models, each a copy of one of the mix under a name and a commit of its own."""
    originals = [
        repo_from_snapshot(read_bundle(ROOT / "fixtures" / "bundles" / f"{name}.json.gz"), library_name="transformers")
        for name in MIX
    ]
    hub = LocalHub(latency_seconds=latency_seconds, quotas={"api": 10**6, "resolvers": 10**6, "pages": 10**6})
    for number in range(count):
        original = originals[number % len(originals)]
        name = f"bench/model-{number:05}"
        files = {path: blob.content for path, blob in original.commits[original.sha].items()}
        commit = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
        hub.add(LocalRepo(name, files, commit=commit, library_name="transformers"))
    return hub


def timed(commands: list[list[str]], models: int, hub: LocalHub, home: Path) -> Run:
    """Run the commands one after another with ``home`` as their cache."""
    hub.reset_log()
    environment = os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    started, cpu_before = time.perf_counter(), cpu_seconds()
    for command in commands:
        run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"{' '.join(command)[-200:]}\n{run.stderr[-2000:]}")
    return Run(models, time.perf_counter() - started, cpu_seconds() - cpu_before, len(hub.requests))


def cpu_seconds() -> float:
    """What all child processes have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def batch(source: list[str], folder: Path) -> list[str]:
    """The command of one batch."""
    return [
        sys.executable,
        "-m",
        "hubaudit",
        "batch",
        *source,
        "-o",
        str(folder),
        "--format",
        "none",
        "-q",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000, help="models of the cold batch")
    parser.add_argument("--peer-models", type=int, default=12, help="models that the peer is timed on")
    parser.add_argument("--cached", type=int, default=1000, help="models of the warm batch")
    parser.add_argument("--latency", type=float, default=0.08, help="seconds each request waits")
    asked = parser.parse_args()
    hub = hub_of(max(asked.models, asked.cached), asked.latency)
    with hub, tempfile.TemporaryDirectory() as place:
        measure(hub, Path(place), asked)


def measure(hub: LocalHub, folder: Path, asked: argparse.Namespace) -> None:
    """Every row, in turn."""
    names = list(hub.routes.repos)
    print(f"{asked.latency * 1000:.0f} ms a request, {os.cpu_count()} processors, which the local Hub shares")
    print(f"{'':<44}{'models':>6}{'seconds':>9}{'CPU ms':>10}{'requests':>10}{'models':>10}{'ratio':>11}")
    print(f"{'':<44}{'':>6}{'':>9}{'a model':>10}{'a model':>10}{'a second':>10}")
    few = names[: asked.peer_models]
    program = timed([[sys.executable, "-c", PROGRAM, name] for name in few], len(few), hub, folder / "peer")
    print(program.line("hf-mem, a process each"), flush=True)
    library = timed([[sys.executable, "-c", LIBRARY, *few]], len(few), hub, folder / "peer2")
    print(library.line("hf-mem, in one process"), flush=True)
    for count, home in ((asked.models, "cold"), (asked.cached, "all")):
        listed = folder / f"{home}.txt"
        listed.write_text("".join(f"{name}\n" for name in names[:count]))
    cold = timed([batch([str(folder / "cold.txt")], folder / "run")], asked.models, hub, folder / "cold")
    print(cold.line("hubaudit batch, cold", program), flush=True)
    print(cold.line("  against the peer in one process", library), flush=True)
    timed([batch([str(folder / "all.txt")], folder / "fill")], asked.cached, hub, folder / "all")
    for title, source in (
        ("hubaudit batch, cached, asking for each commit", [str(folder / "all.txt")]),
        ("hubaudit batch, cached, by one listing", ["--author", "bench", "--limit", str(asked.cached)]),
        ("hubaudit batch, cached, --max-age 1d", [str(folder / "all.txt"), "--max-age", "1d"]),
    ):
        run = timed([batch(source, folder / title[-12:].strip().replace(" ", "-"))], asked.cached, hub, folder / "all")
        print(run.line(title), flush=True)
    rows = [json.loads(line) for line in (folder / "run" / "journal.jsonl").read_text().splitlines()]
    if {row["state"] for row in rows} != {"audited"} or len(rows) != asked.models:
        sys.exit("the batch lost models")


if __name__ == "__main__":
    main()
