"""Exact mode against torch's own CUDA build, over the model types of transformers: recorded on the stub device, compared anywhere.

STUB/run -m tools.exact_survey record [SECONDS]   append to fixtures/exact/survey.jsonl what is not recorded yet (STUB: tools/stub_driver)
python -m tools.exact_survey compare [SECONDS]    trace what is recorded, append to fixtures/exact/survey_traced.jsonl
python -m tools.exact_survey table                write docs/exact.md's table from both

Model types come in a shuffled order that never changes, so that a part of the survey is a fair sample. Each case runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.exact_cases import Case, cases, materialize, model, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ROOT = Path(__file__).parent.parent
RECORDED = _ROOT / "fixtures" / "exact" / "survey.jsonl"
TRACED = _ROOT / "fixtures" / "exact" / "survey_traced.jsonl"
PAGE = _ROOT / "docs" / "exact.md"
_CPU_SECONDS = 90
_CAPABILITY = "8.0"
_BEGIN, _END = "<!-- survey -->\n", "<!-- end of survey -->\n"
Marks = list[list[Any]]


def shuffled() -> list[Case]:
    """All cases, types in an order of chance."""
    found = list(cases())
    types = sorted({case.model_type for case in found})
    random.Random(7).shuffle(types)  # noqa: S311 - to be the same tomorrow
    return sorted(found, key=lambda case: (types.index(case.model_type), case.kind))


def reported(case: Case) -> Marks:
    """What torch.cuda says after each stretch of a run on the stub device."""
    import torch

    built = materialize(model(case), "cuda")
    marks: Marks = []

    def mark(label: str) -> None:
        now = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        marks.append([label, *now, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()])

    mark("load")
    run(built, case, "cuda", mark)
    return marks


def traced(case: Case) -> Marks:
    """The same, by exact mode."""
    from hubaudit.exact.device import blas_policy, device_of_capability
    from hubaudit.exact.emulation import as_on_cuda
    from hubaudit.exact.replay import replay
    from hubaudit.exact.tracer import Tracer

    device = device_of_capability(_CAPABILITY)
    built = model(case)
    tracer = Tracer("meta", device)
    with as_on_cuda(device), tracer:
        tracer.hold(built.parameters())
        tracer.hold(built.buffers())
        tracer.mark("load")
        run(built, case, "meta", tracer.mark)
    phases = replay(tracer.trace(), blas_policy("2.13", device)).phases
    return [
        [one.label, one.allocated_bytes, one.reserved_bytes, one.peak_allocated_bytes, one.peak_reserved_bytes]
        for one in phases
    ]


def read(path: Path) -> dict[Case, dict[str, Any]]:
    """The rows of a file, by case; empty where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = (json.loads(line) for line in lines)
    return {Case(row["model_type"], row["kind"], row["task"]): row for row in rows}


def fill(path: Path, wanted: Iterable[Case], answer: Callable[[Case], Marks], seconds: float) -> None:
    """Append a row for every case that has none yet, until the time is over."""
    done, end = read(path), time.monotonic() + seconds
    for case in wanted:
        if time.monotonic() > end:
            return
        if case not in done:
            row = {**case._asdict(), **_apart(partial(answer, case))}
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")


def _apart(answer: Callable[[], Marks]) -> dict[str, Any]:
    """An answer, or the error in one line, from a process of its own that may crash or run too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        try:
            result: dict[str, Any] = {"marks": answer()}
        except BaseException as error:  # noqa: BLE001 - any end is a row
            result = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"error": "it crashed or took too long"}


def table(recorded: dict[Case, dict[str, Any]], ours: dict[Case, dict[str, Any]]) -> Iterator[str]:
    """The survey in Markdown: the sums, then every run that is not equal at every mark."""
    both = {case: (recorded[case].get("marks"), ours.get(case, {}).get("marks")) for case in recorded}
    whole = {case: (one, two) for case, (one, two) in both.items() if one and two}
    equal = [case for case, (one, two) in whole.items() if one == two]
    near = [case for case, marks in whole.items() if max(map(abs, _errors(*marks))) <= 0.1]
    failed = sum(1 for one, _ in both.values() if not one)
    yield f"{len(recorded)} of {len(list(cases()))} runs recorded; {failed} of them do not run on the stub device. "
    yield f"Of the {len(whole)} that both sides ran, **{len(equal)} are equal to the byte at every mark** and {len(near)} within 0.1 % in both "
    yield "peaks.\n\n| run that is not equal | max allocated | max reserved |\n|---|---:|---:|\n"
    for case, (one, two) in sorted(whole.items()):
        if one != two:
            allocated, reserved = _errors(one, two)
            yield f"| {case.name} | {allocated:+.4f} % | {reserved:+.4f} % |\n"
    for case, (one, two) in sorted(both.items()):
        if one and not two:
            reason = ours.get(case, {}).get("error", "not traced yet")
            yield f"| {case.name} | {reason.replace('|', '/')} | |\n"


def _errors(real: Marks, made: Marks) -> tuple[float, float]:
    """Percent by which the last peaks are off."""
    return 100 * (made[-1][3] / real[-1][3] - 1), 100 * (made[-1][4] / real[-1][4] - 1)


def main(words: list[str]) -> None:
    """Record, compare or write the table."""
    warnings.simplefilter("ignore")
    seconds = float(words[1]) if len(words) > 1 else float("inf")
    if words[0] == "table":
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
        after = rest.partition(_END)[2]
        PAGE.write_text(before + _BEGIN + "".join(table(read(RECORDED), read(TRACED))) + _END + after, encoding="utf-8")
        return
    import transformers

    transformers.logging.set_verbosity_error()
    if words[0] == "record":
        fill(RECORDED, shuffled(), reported, seconds)
    else:
        recorded = read(RECORDED)
        fill(TRACED, [case for case in recorded if "marks" in recorded[case]], traced, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
