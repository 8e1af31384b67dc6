"""A child that ends in any way is an outcome: each is played by a small program in the child's place."""

from __future__ import annotations

import json
import sys
import time

import pytest
from measured_runs import CONFIG, RESULT, WORKLOAD

from hubaudit.errors import CannotAuditError, HubauditError, UsageError
from hubaudit.types import Workload
from hubaudit.verify import launch
from hubaudit.verify.job import Job, check, from_json
from hubaudit.verify.launch import MeasurementError, run

JOB = Job(config=CONFIG, workload=WORKLOAD, device="cpu")


def played(code: str, seconds: float = 60) -> dict[str, object]:
    """The outcome of a child that runs ``code``; ``told`` is the file that it writes."""
    lines = f"import sys, json, os, signal, time\njob, told = sys.argv[1:]\n{code}"
    return run(JOB, seconds, command=(sys.executable, "-c", lines))


def test_a_job_travels_whole() -> None:
    """What the child reads is what was asked."""
    job = Job(
        config=CONFIG,
        workload=Workload(mode="train", llm_int8_skip_modules=("lm_head",), modules_to_save=("a", "b"), lora=4),
        device="cuda:1",
        source="org/name",
        repeats=3,
    )
    assert from_json(job.to_json()) == job


def test_the_childs_figures_come_back() -> None:
    """As it wrote them; it was given the job."""
    code = (
        f"asked = json.load(open(job))\nopen(told, 'w').write({json.dumps(RESULT)!r})\nassert asked['device'] == 'cpu'"
    )
    assert played(code) == RESULT


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        (
            "print('loading'); print('Segmentation fault'); sys.exit(3)",
            "crashed",
            "ended with code 3.*Segmentation fault",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", "crashed", "was killed"),
        ("os.kill(os.getpid(), signal.SIGABRT)", "crashed", f"ended by signal {6}"),
        ("open(told, 'w').write('{\"outcome\": ')", "crashed", "no result"),
        ("time.sleep(60)", "timeout", "longer than 0.5 seconds"),
    ],
)
def test_a_child_that_dies_is_an_outcome(code: str, outcome: str, words: str) -> None:
    """Typed, with its last words, and never a traceback."""
    with pytest.raises(MeasurementError, match=words) as raised:
        played(code, 0.5 if outcome == "timeout" else 60)
    assert raised.value.outcome == outcome
    assert raised.value.exit_code == 5


def test_a_child_that_hangs_takes_its_children_with_it() -> None:
    """The time limit ends the whole family at once."""
    code = "import subprocess\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    began = time.monotonic()
    with pytest.raises(MeasurementError):
        played(code, 1)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        ({"outcome": "refused", "kind": "usage", "message": "no CUDA", "hint": "cpu"}, UsageError, "no CUDA"),
        ({"outcome": "refused", "kind": "cannot_audit", "message": "no such type"}, CannotAuditError, "no such type"),
        (
            {"outcome": "out_of_memory", "message": "tried 2 GiB", "phases": [{"name": "load"}]},
            MeasurementError,
            "out of memory on cpu after `load`: tried 2 GiB",
        ),
        ({"outcome": "failed", "message": "IndexError: x"}, MeasurementError, "does not run while loading: IndexError"),
    ],
)
def test_what_the_child_tells_is_raised(told: dict[str, object], kind: type[HubauditError], words: str) -> None:
    """As the error that it is."""
    with pytest.raises(kind, match=words):
        played(f"open(told, 'w').write({json.dumps(told)!r})")


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way to get them; bitsandbytes only where weights are quantized."""
    monkeypatch.setattr(launch, "find_spec", lambda name: None if name in ("torch", "bitsandbytes") else name)
    with pytest.raises(UsageError, match="needs torch, which is not installed") as raised:
        launch.need_libraries()
    assert "hubaudit[verify]" in raised.value.hint
    with pytest.raises(UsageError, match="torch, bitsandbytes, which are not"):
        launch.need_libraries("nf4")


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Workload(mode="kv"), "--mode kv"),
        (Workload(runtime="vllm"), "--runtime vllm"),
        (Workload(quant="gptq"), "--quant gptq"),
        (Workload(cache="offloaded"), "--cache offloaded"),
        (Workload(mode="train", recipe="mixed-18"), "--recipe mixed-18"),
        (Workload(mode="train", quant="nf4"), "without --lora"),
        (Workload(mode="train", gpus=2), "several GPUs"),
    ],
)
def test_what_is_not_run_is_refused(workload: Workload, words: str) -> None:
    """By name, rather than left out."""
    with pytest.raises(UsageError, match=words):
        check(workload)
