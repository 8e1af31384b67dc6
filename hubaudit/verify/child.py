"""The process that loads and runs: reads a job, writes an outcome as JSON, and ends without a traceback whatever happens."""

from __future__ import annotations

import json
import os
import platform
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from hubaudit.errors import HubauditError
from hubaudit.verify.job import Job, from_json

_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes")


def main(arguments: list[str]) -> int:
    """``JOB OUTCOME``: the paths of both files. The exit code says only whether the outcome was written."""
    job_path, outcome_path = (Path(one) for one in arguments)
    job = from_json(job_path.read_text(encoding="utf-8"))
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    warnings.simplefilter("ignore")
    outcome = _outcome(job)
    outcome_path.write_text(json.dumps(outcome), encoding="utf-8")
    return 0


def _outcome(job: Job) -> dict[str, Any]:
    from hubaudit.monitor.instruments import instrument_for
    from hubaudit.verify import loading, running

    run: Any = None
    try:
        _quiet()
        instrument = instrument_for(job.device.partition(":")[0], with_timeline=job.timeline is not None)
        run = running.Run(job, instrument)
        run.carry_out()
    except HubauditError as error:
        return {"outcome": "refused", "kind": error.kind, "message": error.message, "hint": error.hint, **_so_far(run)}
    except Exception as error:  # noqa: BLE001 - a model's code may fail in any way; the parent says how
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        kind = "out_of_memory" if loading.is_out_of_memory(error) else "failed"
        return {"outcome": kind, "message": reason, **_so_far(run)}
    if job.timeline is not None:
        _draw(job, instrument)
    return {"outcome": "ok", **_so_far(run), **_result(run)}


def _quiet() -> None:
    from importlib import import_module

    transformers = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _so_far(run: Any) -> dict[str, Any]:
    from hubaudit.monitor.process import peak_resident_bytes

    made: dict[str, Any] = {"environment": _environment(run), "peak_resident_bytes": peak_resident_bytes()}
    if run is not None:
        made["measures"] = run.instrument.measures
        made["phases"] = [{"name": label, **reading._asdict()} for label, reading in run.phases]
    return made


def _result(run: Any) -> dict[str, Any]:
    """What a whole run adds. On the CPU the phases are those of the storages as CUDA's allocator would round and keep them."""
    made: dict[str, Any] = {"components": run.components, "cache": run.cache, "rests": run.rests}
    if run.instrument.device == "cpu":
        replayed = run.instrument.replayed()
        made["storages"] = [{"name": label, **reading._asdict()} for label, reading in run.phases]
        made["phases"] = [
            {
                "name": phase.label,
                "allocated_bytes": phase.allocated_bytes,
                "peak_allocated_bytes": phase.phase_peak_allocated_bytes,
                "reserved_bytes": phase.reserved_bytes,
                "peak_reserved_bytes": phase.phase_peak_reserved_bytes,
                "process_bytes": reading.process_bytes,
            }
            for phase, (_, reading) in zip(replayed.phases, run.phases, strict=True)
        ]
        made["at_peak"] = dict(replayed.at_peak)
    return made


def _draw(job: Job, instrument: Any) -> None:
    from hubaudit.exact.timeline import to_html, to_svg

    line = instrument.line()
    draw = to_html if str(job.timeline).endswith(".html") else to_svg
    Path(str(job.timeline)).write_text(draw(line.replayed, line.trace, job.title, line.label), encoding="utf-8")


def _environment(run: Any) -> dict[str, Any]:
    """Hardware and versions, as a calibration record keeps them."""
    versions = {name: _version(name) for name in _LIBRARIES}
    made: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "libraries": {name: version for name, version in versions.items() if version},
        "device": "cpu",
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or None,
    }
    if run is not None and run.instrument.device == "cuda":
        import torch

        from hubaudit.monitor.gpu import gpus

        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        known = gpus()
        made |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "processors": properties.multi_processor_count,
            "total_bytes": properties.total_memory,
            "driver": known[0].driver if known else None,
            "cuda": torch.version.cuda,
        }
    return made


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
