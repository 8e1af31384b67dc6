"""Records what PyTorch's real allocator answers to random requests, for the tests of our model of it.

STUB/run -m tools.allocator_streams write      record fixtures/allocator/streams.json.gz anew (STUB: see tools/stub_driver/build.py)
STUB/run -m tools.allocator_streams compare N  N fresh sequences for each setting against the model, nothing written

A sequence is a list of numbers: a positive one asks for so many bytes, -n frees what the n-th request got, 0 empties the cache. After
each, the allocator's allocated and reserved bytes are noted; ``null`` where it ran out of memory.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.exact.allocator import CachingAllocator, OutOfDeviceMemoryError
from hubaudit.exact.settings import parse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURE = Path(__file__).parent.parent / "fixtures" / "allocator" / "streams.json.gz"
_GIB = 2**30
_RECORDED_STEPS = 1500
_COMPARED_STEPS = 2000
#: PYTORCH_CUDA_ALLOC_CONF and the device's bytes.
CASES: tuple[tuple[str, int | None], ...] = (
    ("", None),
    ("", 2 * _GIB),
    ("expandable_segments:True", None),
    ("expandable_segments:True", 2 * _GIB),
    ("max_split_size_mb:64", 2 * _GIB),
    ("max_split_size_mb:40,max_non_split_rounding_mb:32", 2 * _GIB),
    ("garbage_collection_threshold:0.6,per_process_memory_fraction:0.9", 3 * _GIB),
    ("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9,max_split_size_mb:100", 2 * _GIB),
    ("garbage_collection_threshold:0.6", 2 * _GIB),
    ("roundup_power2_divisions:8", None),
    ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", None),
    ("large_segment_size_mb:64", None),
    ("large_segment_size_mb:64,expandable_segments:True", 2 * _GIB),
    ("per_process_memory_fraction:0.5", 2 * _GIB),
)


def sequence(seed: int, steps: int) -> Iterator[int]:
    """Random requests of all sizes; frees name requests that may have failed, which is then no free at all."""
    rng = random.Random(seed)  # noqa: S311 - to be the same tomorrow
    live: list[int] = []
    sizes: list[int] = []
    for _ in range(steps):
        if live and rng.random() < 0.48:
            yield -live.pop(rng.randrange(len(live)))
        elif rng.random() < 0.003:
            yield 0
        else:
            again = bool(sizes) and rng.random() < 0.3
            sizes.append(sizes[-1] if again else _size(rng))
            live.append(len(sizes))
            yield sizes[-1]


def _size(rng: random.Random) -> int:
    low, high = rng.choices(
        ((1, 4096), (4096, 2**20), (2**20, 12 * 2**20), (10 * 2**20, 300 * 2**20)), (35, 25, 25, 15)
    )[0]
    return rng.randint(low, high)


def modelled(steps: list[int], conf: str, capacity_bytes: int | None) -> list[tuple[int, int] | None]:
    """What our allocator answers."""
    allocator = CachingAllocator(parse_settings(conf), capacity_bytes)
    blocks: dict[int, Any] = {}
    answers: list[tuple[int, int] | None] = []
    asked = 0
    for step in steps:
        fine = True
        if step > 0:
            asked += 1
            try:
                blocks[asked] = allocator.malloc(step)
            except OutOfDeviceMemoryError:
                fine = False
        elif step < 0:
            allocator.free(blocks.pop(-step, None))
        else:
            allocator.empty_cache()
        answers.append((allocator.allocated_bytes, allocator.reserved_bytes) if fine else None)
    return answers


def real(steps: list[int]) -> list[tuple[int, int] | None]:
    """What torch's allocator answers, in this process, on a device that must be the stub."""
    import torch

    memory = torch.cuda.memory
    torch.cuda.empty_cache()
    if torch.cuda.get_device_name() != "stub" or torch.cuda.memory_reserved():
        raise SystemExit("this is for the stub device, with nothing on it")
    blocks: dict[int, int] = {}
    answers: list[tuple[int, int] | None] = []
    asked = 0
    for step in steps:
        fine = True
        if step > 0:
            asked += 1
            try:
                blocks[asked] = memory.caching_allocator_alloc(step, 0)
            except torch.OutOfMemoryError:
                fine = False
        elif step < 0 and -step in blocks:
            memory.caching_allocator_delete(blocks.pop(-step))
        elif step == 0:
            torch.cuda.empty_cache()
        answers.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) if fine else None)
    for address in blocks.values():
        memory.caching_allocator_delete(address)
    return answers


def _child(conf: str, capacity_bytes: int | None, *words: str) -> str:
    """This program again, in a process of its own: an allocator reads its settings once."""
    settings = {"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {}
    settings |= {"STUB_MEMORY_BYTES": str(capacity_bytes)} if capacity_bytes else {}
    command = [sys.executable, "-m", "tools.allocator_streams", *words]
    run = subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout


def write() -> None:
    """Record every case."""
    import torch

    cases = []
    for at, (conf, capacity_bytes) in enumerate(CASES):
        print(f"{at + 1}/{len(CASES)}", conf or "default", file=sys.stderr)
        recorded = json.loads(_child(conf, capacity_bytes, "one", str(1000 + at)))
        cases.append({"conf": conf, "capacity_bytes": capacity_bytes, **recorded})
    document = {"torch": torch.__version__, "cases": cases}
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(FIXTURE, "wb", mtime=0) as stream:
        stream.write(json.dumps(document, separators=(",", ":")).encode())


def compare(sequences: int) -> int:
    """Fresh sequences for each case; the number that differ anywhere."""
    wrong = 0
    for conf, capacity_bytes in CASES:
        answer = _child(conf, capacity_bytes, "differ", str(sequences), conf, str(capacity_bytes or 0))
        wrong += int(answer.split()[0])
        print(conf or "default", capacity_bytes, answer.strip(), flush=True)
    return wrong


def _differ(sequences: int, conf: str, capacity_bytes: int | None) -> str:
    wrong, requests_refused = 0, 0
    first = ""
    for seed in range(sequences):
        steps = list(sequence(seed, _COMPARED_STEPS))
        answers, ours = real(steps), modelled(steps, conf, capacity_bytes)
        requests_refused += answers.count(None)
        if answers != ours:
            wrong += 1
            at = next(at for at, pair in enumerate(zip(answers, ours, strict=True)) if pair[0] != pair[1])
            first = first or f"seed {seed} step {at} ({steps[at]}): real {answers[at]}, model {ours[at]}"
    return f"{wrong} of {sequences} differ, {requests_refused} requests refused {first}"


def main(words: list[str]) -> int:
    """One of write, compare, and what they run in processes of their own."""
    if words[0] == "write":
        write()
    elif words[0] == "compare":
        return 1 if compare(int(words[1])) else 0
    elif words[0] == "one":
        steps = list(sequence(int(words[1]), _RECORDED_STEPS))
        print(json.dumps({"steps": steps, "answers": real(steps)}))
    elif words[0] == "differ":
        print(_differ(int(words[1]), words[2], int(words[3]) or None))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
