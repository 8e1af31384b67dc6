"""Fuzz the targets with libFuzzer through atheris, each in a process of its own, and keep count of what was run.

    python tests/fuzz/run.py --runs 20000                     every target, as `tox -e fuzz` does
    python tests/fuzz/run.py --seconds 60 gguf-file           one target, for a time
    python tests/fuzz/run.py --record fixtures/fuzz/record.json --runs 100000

The exit code is 1 where a target fell over; the input lies in the folder that is named then.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent, HERE.parent.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

_MOST_MB = 1_024
#: By the clock, for what hangs without working; what works too long is told by `registry.MOST_SECONDS` of the processor, which a busy machine does not change.
_HANGING_SECONDS = 120
_INSTRUMENTED = ("hubaudit",)


def main() -> int:
    """Every target that was named, or all; 1 where one fell over."""
    options = _options()
    if options.child:
        return _child(options.child, Path(options.libfuzzer[-1].removeprefix("=")), options.libfuzzer)
    from fuzz.registry import MODULES

    failed = False
    for name in options.targets or [name for names in MODULES.values() for name in names]:
        row = _fuzzed(name, options)
        sys.stdout.write(
            f"{name:26} {row['cases']:>9,} cases {row['seconds']:>5} s {row['peak_mb']:>5} MB {row['ended']}\n"
        )
        sys.stdout.flush()
        failed = failed or row["ended"] != "ok"
        if options.record is not None:
            _keep(options.record, row)
    return int(failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", help="names of targets; all where none is named")
    parser.add_argument("--runs", type=int, default=20_000, help="cases of each target")
    parser.add_argument("--seconds", type=int, default=0, help="end after this time, if not before")
    parser.add_argument("--corpus", type=Path, help="keep what was found interesting here, and go on from it")
    parser.add_argument("--record", type=Path, help="add what was run to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--libfuzzer", nargs="*", default=[], help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(name: str, corpus: Path, libfuzzer: list[str]) -> int:
    """One target under libFuzzer, which ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        from fuzz.registry import target_of, tried

        one = target_of(name)
    for at, seed in enumerate(one.seeds()):
        (corpus / f"seed-{at}").write_bytes(seed)
    (corpus.parent / f"{name}.dict").write_text(
        "".join(f'"{_escaped(word)}"\n' for word in one.dictionary), encoding="ascii"
    )
    words = [word.removeprefix("=") for word in libfuzzer if one.dictionary or not word.startswith("=-dict")]
    atheris.Setup([sys.argv[0], *words], lambda data: tried(one, data) and None)
    atheris.Fuzz()
    return 0


def _fuzzed(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Run one target and say what came of it."""
    with tempfile.TemporaryDirectory(prefix="hubaudit-fuzz-") as folder:
        corpus = (options.corpus or Path(folder)) / name
        corpus.mkdir(parents=True, exist_ok=True)
        artifacts = Path(tempfile.mkdtemp(prefix=f"hubaudit-{name}-"))
        asked = [
            f"-runs={options.runs}", "-max_len=4096", "-print_final_stats=1", f"-rss_limit_mb={_MOST_MB}", f"-timeout={_HANGING_SECONDS}",
            f"-artifact_prefix={artifacts}/", f"-dict={corpus}.dict", *([f"-max_total_time={options.seconds}"] if options.seconds else []), str(corpus),
        ]  # fmt: skip
        began = datetime.now(UTC)
        ended = subprocess.run(
            [sys.executable, __file__, "--child", name, "--libfuzzer", *(f"={word}" for word in asked)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        log = ended.stdout.decode("utf-8", errors="replace")
    found = sorted(artifacts.iterdir())
    if not found:
        artifacts.rmdir()
    if ended.returncode:
        sys.stdout.write(log[-4000:])
    return {
        "target": name,
        "date": began.date().isoformat(),
        "cases": _stat(log, "number_of_executed_units"),
        "seconds": round((datetime.now(UTC) - began).total_seconds()),
        "peak_mb": _stat(log, "peak_rss_mb"),
        "slowest_seconds": _stat(log, "slowest_unit_time_sec"),
        "python": platform.python_version(),
        "engine": f"atheris {version('atheris')}",
        "ended": "ok" if ended.returncode == 0 else f"failed: {found or ended.returncode}",
    }


def _stat(log: str, name: str) -> int:
    found = re.findall(rf"stat::{name}:\s+(\d+)", log)
    return int(found[-1]) if found else 0


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _keep(path: Path, row: dict[str, object]) -> None:
    """Add one row to the record; what fell over is mended and run again before it is kept."""
    record = json.loads(path.read_text()) if path.exists() else {"runs": [], "found": []}
    if row["ended"] == "ok":
        record["runs"].append({key: value for key, value in row.items() if key != "ended"})
        path.write_text(json.dumps(record, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
