"""How the cost of a safetensors header grows with its tensors: ten times as many should cost about ten times as much.

Run ``python benchmarks/large_headers.py``. It prints seconds for 10,000 and 100,000 tensors, read from a file's bytes and taken from the
Hub's own decoding, beside what Python's ``json`` alone needs for the text, and fails where ten times the tensors cost 15 times as much.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from hubaudit.formats.safetensors import read_safetensors, read_served_header

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = 10_000, 100_000
REPEATS = 5
WORST_RATIO = 15.0


class Bytes:
    """A file in memory whose data was left out: only its header is ever read."""

    path = "model.safetensors"

    def __init__(self, content: bytes, size_bytes: int) -> None:
        self._content = content
        self.size_bytes: int | None = size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        return self._content[offset : offset + length]


def header(tensors: int) -> dict[str, object]:
    """A mixture of experts with so many matrices, as such checkpoints name them."""
    size = 2048 * 1408 * 2
    return {
        f"model.layers.{at // 768}.mlp.experts.{at // 3 % 256}.{('gate', 'up', 'down')[at % 3]}_proj.weight": {
            "dtype": "BF16",
            "shape": [1408, 2048],
            "data_offsets": [at * size, (at + 1) * size],
        }
        for at in range(tensors)
    }


def seconds(work: Callable[[], object]) -> float:
    """The best of a few runs, in CPU time, which other programs on the machine disturb least."""
    best = float("inf")
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def measure(tensors: int) -> dict[str, float]:
    """Seconds of each way to the same tensors."""
    decoded = header(tensors)
    text = json.dumps(decoded, separators=(",", ":")).encode()
    size_bytes = 8 + len(text) + tensors * 2048 * 1408 * 2
    content = len(text).to_bytes(8, "little") + text
    file = Bytes(content, size_bytes)
    assert len(read_safetensors(file).tensors) == tensors
    return {
        "json alone": seconds(lambda: json.loads(text)),
        "from the file": seconds(lambda: read_safetensors(file)),
        "as served": seconds(lambda: read_served_header(decoded, "x", size_bytes=size_bytes)),  # type: ignore[arg-type]
    }


def main() -> int:
    """Print the table; 1 where the cost grows faster than it may."""
    few, many = measure(FEW), measure(MANY)
    print(f"{'':14}{FEW:>12,}{MANY:>12,}{'ratio':>8}")
    for name, cost in few.items():
        print(f"{name:14}{cost:>10.3f} s{many[name]:>10.3f} s{many[name] / cost:>8.1f}")
    return 0 if all(many[name] / few[name] < WORST_RATIO for name in ("from the file", "as served")) else 1


if __name__ == "__main__":
    sys.exit(main())
