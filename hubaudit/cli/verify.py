"""`hubaudit verify REPO`: load it and measure, beside the estimate and exact mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.options import (
    access_options,
    attention_option,
    device_options,
    dtype_option,
    engine_options,
    prompt_options,
    quant_options,
    training_options,
)

if TYPE_CHECKING:
    from hubaudit.errors import HubauditError
    from hubaudit.types import RepoSnapshot, Workload
    from hubaudit.verify.beside import Request
    from hubaudit.verify.measurement import Measurement

_COMPARED = (None, "int8", "nf4")


@click.command("verify")
@click.argument("repo", required=False)
@click.option("--gpu-info", is_flag=True, help="Only say which GPUs there are, their memory and driver.")
@click.option(
    "--dummy-weights",
    is_flag=True,
    help="Random weights of the config's shapes: nothing is downloaded but config.json.",
)
@click.option("--mode", type=click.Choice(["infer", "train"]), default="infer", show_default=True, help="What to run.")
@click.option(
    "--device",
    metavar="DEVICE",
    help="cuda, cuda:N, or cpu (storages of CPU tensors). Default: cuda where there is one.",
)
@prompt_options
@click.option("--new-tokens", type=click.IntRange(0), default=16, show_default=True, help="Tokens generated for each.")
@dtype_option
@quant_options
@engine_options
@attention_option
@device_options
@training_options
@click.option("--compare", is_flag=True, help="Run 16-bit, int8 and nf4 weights in turn.")
@click.option("--slope", is_flag=True, help="Run twice the batch too: what each further sequence takes.")
@click.option(
    "--repeat", "repeats", type=click.IntRange(0), default=0, help="Run so many times more, to see what stays behind."
)
@click.option(
    "--time-limit",
    "limit_seconds",
    type=click.FloatRange(1),
    default=900,
    show_default=True,
    help="Seconds after which a run is ended.",
)
@click.option("--no-exact", is_flag=True, help="Leave exact mode's figures out.")
@click.option("--timeline", metavar="FILE", help="Draw memory over the measured run, as FILE.svg or FILE.html.")
@click.option("--json", "as_json", is_flag=True, help="Print the calibration record instead of tables.")
@click.option(
    "-o", "--output", "record_path", type=click.Path(dir_okay=False), help="Write a calibration record to FILE.json."
)
@access_options
def command(
    repo: str | None,
    gpu_info: bool,
    dummy_weights: bool,
    device: str | None,
    compare: bool,
    slope: bool,
    repeats: int,
    limit_seconds: float,
    no_exact: bool,
    timeline: str | None,
    as_json: bool,
    record_path: str | None,
    **options: Any,
) -> int:
    """Load REPO in a process of its own, run it, and show what memory it took beside the estimate's and exact mode's figures.

    Needs pip install 'hubaudit[verify]'. Code of the repository is never run. REPO may be a bundle with --dummy-weights.
    """
    if gpu_info:
        return _gpu_info(as_json=as_json)
    if repo is None:
        raise click.UsageError("Missing argument 'REPO'.")
    if timeline is not None and (compare or slope or Path(timeline).suffix not in (".svg", ".html")):
        raise click.UsageError("--timeline writes .svg or .html of one run")
    if compare and slope:
        raise click.UsageError("--compare and --slope are one at a time")
    from hubaudit.hub import fetch
    from hubaudit.verify.beside import Request
    from hubaudit.verify.launch import need_libraries

    need_libraries(options["quant"])
    access = {name: options.pop(name) for name in ("revision", "token", "cache_dir", "offline", "file")}
    options["llm_int8_skip_modules"] = options["llm_int8_skip_modules"] or None
    snapshot = fetch(repo, **access)
    request = Request(
        device=_device(device),
        source=None if dummy_weights else _source(snapshot, repo, access["file"]),
        revision=None if dummy_weights or snapshot.source == "local" else snapshot.commit or snapshot.revision,
        repeats=repeats,
        limit_seconds=limit_seconds,
        with_exact=not no_exact,
        environment=_environment(access),
        timeline=None if timeline is None else str(Path(timeline).absolute()),
    )
    return _carried_out(snapshot, _workloads(options, compare=compare, slope=slope), request, record_path, as_json)


def _workloads(options: dict[str, Any], *, compare: bool, slope: bool) -> list[tuple[str, Workload]]:
    """What to run, by name, in turn."""
    from hubaudit.types import Workload

    if options["mode"] == "train":
        options = {**options, "new_tokens": None, "prompt_tokens": None}
    asked = Workload(**options)
    if compare:
        named = [(quant or asked.recipe or asked.dtype or "as loaded", quant) for quant in _COMPARED]
        return [(name, replace(asked, quant=quant)) for name, quant in named]
    return [("", asked), *([("", replace(asked, batch_size=2 * asked.batch_size))] if slope else ())]


def _carried_out(
    snapshot: RepoSnapshot,
    workloads: list[tuple[str, Workload]],
    request: Request,
    record_path: str | None,
    as_json: bool,
) -> int:
    """Measure each, print, write; a run of several that fails is a row with its reason."""
    from hubaudit.errors import HubauditError
    from hubaudit.verify import table
    from hubaudit.verify.beside import measure

    is_comparison = len({work.quant for _, work in workloads}) > 1
    results: list[tuple[str, Measurement | HubauditError]] = []
    records: list[dict[str, Any]] = []
    for name, work in workloads:
        try:
            made = measure(snapshot, work, request)
        except HubauditError as error:
            _note_failure(records, snapshot, work, request, error)
            if not is_comparison:
                _write(record_path, records)
                raise
            results.append((name, error))
            continue
        results.append((name, made))
        records.append(_record(made))
    _write(record_path, records)
    measured = [made for _, made in results if not isinstance(made, HubauditError)]
    if as_json:
        from hubaudit.verify.record import to_text

        click.echo(to_text(records[0] if len(records) == 1 else records), nl=False)
    elif is_comparison:
        click.echo(table.compare_text(results), nl=False)
    else:
        click.echo("\n".join(table.to_text(made) for made in measured), nl=False)
        if len(measured) > 1:
            click.echo("\n" + table.slope_text(*measured), nl=False)
    failures = [made for _, made in results if isinstance(made, HubauditError)]
    return failures[0].exit_code if failures and not measured else 0


def _record(made: Measurement) -> dict[str, Any]:
    from hubaudit.verify.record import to_record

    return to_record(made)


def _note_failure(
    records: list[dict[str, Any]], snapshot: RepoSnapshot, work: Workload, request: Request, error: HubauditError
) -> None:
    """A run that ran out of memory or time is a measurement too."""
    from hubaudit.verify.launch import MeasurementError
    from hubaudit.verify.record import failed_record

    if isinstance(error, MeasurementError):
        records.append(
            failed_record(
                error,
                repo_id=snapshot.repo_id,
                config=snapshot.configs.get("config.json", {}),
                workload=work,
                device=request.device.partition(":")[0],
                weights="random" if request.source is None else "loaded",
            )
        )


def _write(path: str | None, records: list[dict[str, Any]]) -> None:
    if path is None or not records:
        return
    from hubaudit.errors import UsageError
    from hubaudit.verify.record import to_text

    try:
        Path(path).write_text(to_text(records[0] if len(records) == 1 else records), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None


def _source(snapshot: RepoSnapshot, repo: str, file: str | None) -> str:
    """What transformers loads weights from: a folder, or the Hub's id.

    Raises:
        UsageError: there are no weights where ``repo`` points.
    """
    from hubaudit.errors import UsageError

    hint = "--dummy-weights runs random ones of the config's shapes"
    if file is not None:
        raise UsageError("--file names weights to audit, and verify loads what transformers would", hint=hint)
    if Path(repo).is_dir():
        return repo
    if snapshot.source == "local" or Path(repo).is_file():
        raise UsageError("a bundle or a single file holds no model to load", hint=hint)
    return snapshot.repo_id


def _device(name: str | None) -> str:
    """The device asked for, or CUDA where this machine has it."""
    from importlib import import_module

    from hubaudit.errors import UsageError

    if name is None:
        return "cuda" if import_module("torch").cuda.is_available() else "cpu"
    if name.partition(":")[0] not in ("cuda", "cpu"):
        raise UsageError(f"verify measures on cuda or cpu, not on {name}")
    return name


def _environment(access: dict[str, Any]) -> dict[str, str]:
    """What the child's libraries are told: the token, and that the Hub is not to be asked."""
    made = {"HF_TOKEN": str(access["token"])} if access["token"] else {}
    return {**made, **({"HF_HUB_OFFLINE": "1"} if access["offline"] else {})}


def _gpu_info(*, as_json: bool) -> int:
    """One line a GPU, or one that says there is none, with the exit code of what cannot be audited."""
    import json
    from dataclasses import asdict

    from hubaudit.errors import CannotAuditError
    from hubaudit.monitor.gpu import gpus
    from hubaudit.units import format_bytes

    found = gpus()
    if not found:
        raise CannotAuditError(
            "no GPU: neither NVML nor nvidia-smi answers",
            hint="`hubaudit verify REPO --device cpu` measures without one",
        )
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
        return 0
    for one in found:
        total, used = ("unknown" if size is None else format_bytes(size) for size in (one.total_bytes, one.used_bytes))
        click.echo(f"{one.index}: {one.name}, {total} ({used} used), driver {one.driver or 'unknown'}, by {one.source}")
    return 0
