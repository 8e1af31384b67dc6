"""Exact mode against torch's own CUDA build, over the model types of transformers: recorded on the stub device, compared anywhere.

STUB/run -m tools.exact_survey record [SECONDS]   append to fixtures/exact/survey.jsonl what is not recorded yet (STUB: tools/stub_driver),
                                                  and trace it too, as compare does
python -m tools.exact_survey compare [SECONDS]    trace what is recorded, append to fixtures/exact/survey_traced.jsonl
python -m tools.exact_survey again [SECONDS]      trace anew what another version of exact mode traced
python -m tools.exact_survey table                write docs/exact.md's table from both

Model types come in a shuffled order that never changes, so that a part of the survey is a fair sample. Each case runs in a process of its own,
forked from one that holds what all of them import. Some models go through sets of names, whose order is another in every process: all run with one.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import json
import os
import random
import resource
import signal
import sys
import time
import warnings
from functools import cache, partial
from importlib import import_module
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
_ANSWER_SECONDS = 300
_STUB_BYTES = 2**44
_CAPABILITY = "8.0"
#: Modules that make nothing of the survey's traces: what asks for a trace and shows it, and what only quantized models, adapters and optimizers
#: that are not torch's own go through (tools/exact_families.py holds those).
_NOT_TRACED = (
    "auditing", "timeline", "snapshot", "settings", "device_map", "plan", "scenario", "building", "quantized", "eight_bit", "optimizers",
    "generation", "sampling", "lengths", "largest",
)  # fmt: skip
#: What the stub device answers where its yes is wrong: "is there padding?"
_FLAGS = {Case("fsmt", "seq2seq", "train"): "0"}
#: Modules that replace functions which only these types call (tests/exact/test_survey_oracle.py looks): they tell versions of those traces only.
ONLY_OF = {"norm": ("diffllama", "xlstm"), "asking": ("longt5",), "replaced": ("diffllama", "xlstm", "longt5")}
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
    from hubaudit.exact.grouped import overrides
    from hubaudit.exact.replaced import replaced
    from hubaudit.exact.replay import replay
    from hubaudit.exact.routing import Routing
    from hubaudit.exact.tracer import Tracer

    device = device_of_capability(_CAPABILITY)
    built = materialize(model(case), "meta")  # the few that are made of values are on the host until then
    tracer = Tracer("meta", device)
    tracer.overrides.update(overrides() | Routing(None).overrides())
    with as_on_cuda(device), replaced(), tracer:
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


@cache
def _program(path: Path) -> bytes:
    return ast.dump(ast.parse(path.read_text(encoding="utf-8"))).encode()


@cache
def code_digest(model_type: str) -> str:
    """What tells one version of a type's traces from another: the programs of exact mode's modules, not their layout, and the table of devices."""
    whole = hashlib.sha256((_ROOT / "hubaudit" / "data" / "torch_cuda.toml").read_bytes())
    for path in sorted((_ROOT / "hubaudit" / "exact").rglob("*.py")):
        if path.stem not in _NOT_TRACED and model_type in ONLY_OF.get(path.stem, (model_type,)):
            whole.update(_program(path))
    return whole.hexdigest()[:12]


def _is_old(case: Case, row: dict[str, Any]) -> bool:
    return row.get("code") != code_digest(case.model_type)


def fill(wanted: Iterable[Case], answers: dict[Path, Callable[[Case], Marks]], seconds: float) -> None:
    """Append a row to each file for every case, until the time is over."""
    end = time.monotonic() + seconds
    for case in wanted:
        if time.monotonic() > end:
            return
        os.environ["STUB_FLAG"] = _FLAGS.get(case, "1")
        rows = _apart([partial(answer, case) for answer in answers.values()])
        for path, row in zip(answers, rows, strict=True):
            if path == TRACED:
                row["code"] = code_digest(case.model_type)
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({**case._asdict(), **row}) + "\n")


def _apart(answers: list[Callable[[], Marks]]) -> list[dict[str, Any]]:
    """Answers, or the error of each in one line, from a process of its own that may crash or run too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        signal.alarm(_ANSWER_SECONDS)
        for answer in answers:
            os.write(writing, json.dumps(_answered(answer)).encode() + b"\n")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        rows = [json.loads(line) for line in stream]
    os.waitpid(child, 0)
    return rows + [{"error": "it crashed or took too long"}] * (len(answers) - len(rows))


def _answered(answer: Callable[[], Marks]) -> dict[str, Any]:
    try:
        return {"marks": answer()}
    except BaseException as error:  # noqa: BLE001 - any end is a row
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}


def _prepared() -> None:
    """Import what every case needs, so that none of them has to: the forward pass of a small model asks for most of it."""
    sys.modules["torchao"] = None  # type: ignore[assignment]  # as if it were not installed: it asks the device while it is imported
    import torch
    import transformers

    for name in ("emulation", "replay", "tracer", "scenario"):
        import_module(f"hubaudit.exact.{name}")

    transformers.logging.set_verbosity_error()
    with torch.device("meta"):
        config = transformers.LlamaConfig(
            hidden_size=8, intermediate_size=8, num_attention_heads=1, num_hidden_layers=1
        )
        one = transformers.AutoModelForCausalLM.from_config(config)
        torch.optim.AdamW(one.parameters(), fused=True)
        transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForMaskedLM  # noqa: B018 - imported when they are named
        with torch.no_grad():
            one(input_ids=torch.zeros(1, 4, dtype=torch.long))
    gc.collect()


def table(recorded: dict[Case, dict[str, Any]], ours: dict[Case, dict[str, Any]]) -> Iterator[str]:
    """The survey in Markdown: the sums, then every run that is not equal at every mark."""
    both = {case: (recorded[case].get("marks"), ours.get(case, {}).get("marks")) for case in recorded}
    whole = {case: (one, two) for case, (one, two) in both.items() if one and two}
    equal = [case for case, (one, two) in whole.items() if one == two]
    near = [case for case, marks in whole.items() if max(map(abs, _errors(*marks))) <= 0.1]
    failed = sum(1 for one, _ in both.values() if not one)
    yield f"{len(recorded)} of {len(list(cases()))} runs recorded; {failed} of them do not run on the stub device. "
    old = sum(1 for case in whole if _is_old(case, ours[case]))
    if old:
        yield f"{old} of exact mode's sides were traced by an earlier version of it. "
    yield f"Of the {len(whole)} that both sides ran, **{len(equal)} are equal to the byte at every mark** and {len(near)} within 0.1 % in both "
    yield "peaks.\n"
    if len(equal) < sum(1 for one, _ in both.values() if one):
        yield "\n| run that is not equal | max allocated | max reserved |\n|---|---:|---:|\n"
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
    os.environ.setdefault("STUB_MEMORY_BYTES", str(_STUB_BYTES))
    _prepared()
    recorded, done = read(RECORDED), read(TRACED)
    if words[0] == "record":
        wanted = [case for case in shuffled() if case not in recorded]
        answers: dict[Path, Callable[[Case], Marks]] = {RECORDED: reported, TRACED: traced}
    else:
        ran = [case for case in recorded if "marks" in recorded[case]]
        is_again = words[0] == "again"
        wanted = [case for case in ran if case not in done or (is_again and _is_old(case, done[case]))]
        wanted.sort(
            key=lambda case: done.get(case, {}).get("marks") == recorded[case]["marks"]
        )  # what was not equal first
        answers = {TRACED: traced}
    fill(wanted, answers, seconds)
    if TRACED in answers:
        _keep_last(TRACED)


def _keep_last(path: Path) -> None:
    """Drop the rows that newer ones of the same case replace."""
    rows = read(path)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - itself again
    main(sys.argv[1:])
