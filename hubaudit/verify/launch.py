"""Runs a job in a process of its own: what kills it, or keeps it, is an outcome and never the caller's end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.errors import CannotAuditError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hubaudit.verify.job import Job

_NEEDED = ("torch", "transformers", "accelerate")
_HINT = "pip install 'hubaudit[verify]'"
_WORDS = 300
COMMAND = (sys.executable, "-m", "hubaudit.verify.child")


class MeasurementError(CannotAuditError):
    """The run did not end: ``outcome`` is ``out_of_memory``, ``timeout``, ``crashed`` or ``failed``; ``result`` what it told before."""

    kind = "measurement"

    def __init__(self, outcome: str, message: str, *, hint: str = "", result: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome
        self.result = dict(result or {})


def need_libraries(quant: str | None = None, *, adapters: bool = False) -> None:
    """Raise where what the child imports is missing.

    Raises:
        UsageError: it names what.
    """
    wanted = (*_NEEDED, *(("bitsandbytes",) if quant else ()), *(("peft",) if adapters or quant else ()))
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        words = f"{', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise UsageError(f"verify needs {words}", hint=_HINT)


def run(
    job: Job, limit_seconds: float, *, environment: Mapping[str, str] | None = None, command: Sequence[str] = COMMAND
) -> dict[str, Any]:
    """What the child wrote: outcome ``ok``, with its figures.

    Raises:
        UsageError: the child refused, as it was asked for what is not there.
        CannotAuditError: it refused, as the model cannot be loaded or run.
        MeasurementError: it ended otherwise.
    """
    with tempfile.TemporaryDirectory(prefix="hubaudit-verify-") as folder:
        asked, told = Path(folder) / "job.json", Path(folder) / "outcome.json"
        asked.write_text(job.to_json(), encoding="utf-8")
        words, code = _finished(
            [*command, str(asked), str(told)], limit_seconds, {**os.environ, **(environment or {})}, Path(folder)
        )
        try:
            result: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise _crashed(code, words) from None
    if result["outcome"] == "ok":
        return result
    raise _refused(result) if result["outcome"] == "refused" else _ended(job, result)


def _finished(command: list[str], limit_seconds: float, environment: dict[str, str], folder: Path) -> tuple[str, int]:
    """The end of what the child said, and its exit code. Its whole family is ended where it takes too long."""
    log = folder / "log"
    with (
        log.open("wb") as stream,
        subprocess.Popen(  # noqa: S603 - this interpreter, on a module of ours
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, start_new_session=True
        ) as child,
    ):
        try:
            code = child.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            _end(child)
            raise MeasurementError(
                "timeout", f"the run took longer than {limit_seconds:g} seconds", hint="--time-limit gives it more"
            ) from None
        except BaseException:
            _end(child)
            raise
    return log.read_bytes()[-4096:].decode("utf-8", "replace"), code


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (OSError, AttributeError):  # it is gone, or the system has no groups of processes
        child.kill()


def _refused(result: Mapping[str, Any]) -> CannotAuditError | UsageError:
    made = UsageError if result.get("kind") == "usage" else CannotAuditError
    return made(result["message"], hint=result.get("hint", ""))


def _ended(job: Job, result: Mapping[str, Any]) -> MeasurementError:
    phases = [phase["name"] for phase in result.get("phases", ())]
    where = f" after `{phases[-1]}`" if phases else " while loading"
    if result["outcome"] == "out_of_memory":
        message = f"out of memory on {job.device}{where}: {result['message']}"
        hint = "a smaller batch, fewer tokens, or --quant nf4"
        return MeasurementError("out_of_memory", message, hint=hint, result=result)
    return MeasurementError("failed", f"the model does not run{where}: {result['message']}", result=result)


def _crashed(code: int, words: str) -> MeasurementError:
    last = " ".join((words.strip().splitlines() or [""])[-1].split())[:_WORDS]
    said = f"; it said: {last}" if last else ""
    if code == -signal.SIGKILL:
        hint = "the system ends processes so when memory runs out"
        return MeasurementError("crashed", f"the run was killed{said}", hint=hint)
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code} and no result"
    return MeasurementError("crashed", f"the run {how}{said}")
