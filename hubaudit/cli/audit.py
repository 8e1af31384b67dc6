"""`hubaudit REPO...`: the audit itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.destination import opened
from hubaudit.cli.exact import chosen, exact_options, with_exact
from hubaudit.cli.gate import gate_options
from hubaudit.cli.getting_ready import get_ready
from hubaudit.cli.options import (
    access_options,
    attention_option,
    device_options,
    dtype_option,
    engine_options,
    hardware_options,
    prompt_options,
    quant_options,
    training_options,
)
from hubaudit.cli.plot import check_plot, write_plot

if TYPE_CHECKING:
    from hubaudit.cli.exact import ExactChoice
    from hubaudit.cli.gate import Gate
    from hubaudit.errors import HubauditError
    from hubaudit.types import Hardware, Report

_FORMATS = ("human", "json", "jsonl", "csv", "markdown", "agent", "github", "sarif")
_FOR_MACHINES = ("agent", "github", "sarif")
_SIDE_BY_SIDE = 4


@click.command("audit")
@click.argument("repos", nargs=-1, required=True, metavar="REPO...")
@click.option(
    "--mode", type=click.Choice(["infer", "kv", "train"]), default="infer", show_default=True, help="What to estimate."
)
@prompt_options
@click.option("--new-tokens", type=click.IntRange(0), help="Tokens generated for each. Default: 512.")
@click.option(
    "--encoder-tokens",
    type=click.IntRange(0),
    help="Tokens that an encoder (text, image, sound) hands on. Default: the prompt's.",
)
@dtype_option
@quant_options
@engine_options
@attention_option
@device_options
@training_options
@hardware_options
@exact_options
@gate_options
@click.option(
    "--format", "output_format", type=click.Choice(_FORMATS), default="human", show_default=True, help="What to print."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report: the exit code tells. Errors, -o and --plot remain.")
@click.option("--explain", "with_explanation", is_flag=True, help="Show how every number came about.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, allow_dash=True), help="Write to FILE instead of stdout."
)
@click.option(
    "--plot", metavar="FILE", help="Draw it too: FILE.svg, FILE.html, or FILE.png (pip install 'hubaudit[plot]')."
)
@access_options
def command(
    repos: tuple[str, ...],
    output_format: str,
    as_json: bool,
    quiet: bool,
    with_explanation: bool,
    output: str | None,
    plot: str | None,
    gpu_names: tuple[str, ...],
    memories: tuple[str, ...],
    fail_on: tuple[str, ...],
    ignore: tuple[str, ...],
    exact: bool,
    timeline: str | None,
    memory_snapshot: str | None,
    **options: Any,
) -> int:
    """Audit one model or several: what each is, what memory it needs, and what is wrong with its repository."""
    access = {name: options.pop(name) for name in ("revision", "token", "cache_dir", "offline", "file")}
    output_format = "json" if as_json else output_format
    options["llm_int8_skip_modules"] = options["llm_int8_skip_modules"] or None
    check_plot(plot)
    from hubaudit.cli.settings import gate_of

    gate = gate_of(fail_on, ignore)
    choice = chosen(wanted=exact, timeline=timeline, memory_snapshot=memory_snapshot, repos=len(repos))
    hardware = devices(gpu_names, memories, must_fit="fit" in fail_on)
    _one_process_on_each(options, hardware)
    audited = read_and_audit(repos, options, hardware, access, output_format, choice)
    results = [result if isinstance(result, tuple) else gate.applied(result) for result in audited]
    if output or not quiet:
        _deliver(results, output_format, output, with_explanation=with_explanation)
    reports = [result for result in results if not isinstance(result, tuple)]
    if plot and reports:
        write_plot(reports, plot)
    return _end(results, gate)


def _one_process_on_each(options: dict[str, Any], hardware: tuple[Hardware, ...]) -> None:
    """Training on ``--gpu NAMExN`` runs on all of them, unless ``--gpus`` says otherwise."""
    context = click.get_current_context(silent=True)
    said = context is not None and context.get_parameter_source("gpus") is click.core.ParameterSource.COMMANDLINE
    counts = {one.count for one in hardware}
    if options["mode"] == "train" and not said and len(counts) == 1:
        options["gpus"] = counts.pop()


def devices(gpus: tuple[str, ...], memories: tuple[str, ...], *, must_fit: bool) -> tuple[Hardware, ...]:
    """The devices that were named, in that order."""
    if not gpus and not memories:
        if must_fit:
            raise click.UsageError("--fail-on fit needs --gpu NAME or --memory SIZE to fit on")
        return ()
    from hubaudit.cli.machine import this_machine
    from hubaudit.fit.catalogue import hardware_named, hardware_of_size

    named = [this_machine() if name == "auto" else (hardware_named(name),) for name in gpus]
    return (*(device for devices in named for device in devices), *map(hardware_of_size, memories))


def read_and_audit(
    repos: tuple[str, ...],
    workload: dict[str, Any],
    hardware: tuple[Hardware, ...],
    access: dict[str, Any],
    output_format: str,
    choice: ExactChoice | None = None,
) -> list[Report | tuple[str, HubauditError]]:
    """Read all subjects side by side, then work them out in order. While the Hub answers, what the answer needs is imported."""
    from concurrent.futures import ThreadPoolExecutor
    from functools import partial
    from threading import Event

    from hubaudit.errors import HubauditError
    from hubaudit.hub import fetch

    results: list[Report | tuple[str, HubauditError]] = []
    pool = ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE)
    try:
        waiting = Event()
        names = dict.fromkeys(repos)
        # Of one model the first answer counts, of many the Hub's quota.
        read = partial(fetch, waiting=waiting, ask_ahead=len(names) == 1, **access)
        reading = {repo: pool.submit(read, repo) for repo in names}
        for one in reading.values():
            one.add_done_callback(lambda _: waiting.set())
        get_ready(output_format, waiting)
        from hubaudit.auditing import audit_snapshot
        from hubaudit.types import Workload

        wanted = Workload(**workload)
        for repo in repos:
            try:
                report = audit_snapshot(reading[repo].result(), wanted, hardware)
                results.append(
                    with_exact(reading[repo].result(), report, choice) if choice and choice.wanted else report
                )
            except HubauditError as error:
                results.append((repo, error))
    finally:  # at the end nothing is under way; who interrupts does not wait for what is
        pool.shutdown(wait=False, cancel_futures=True)
    return results


def _deliver(
    results: list[Report | tuple[str, HubauditError]], output_format: str, output: str | None, *, with_explanation: bool
) -> None:
    if output_format == "human" and not any(not isinstance(result, tuple) for result in results):
        return
    with opened(output) as stream:
        if output_format == "human":
            _print_human(results, stream, with_explanation=with_explanation)
        else:
            stream.write(_text(results, output_format))


#: A narrower terminal wraps the lines; rich would cut figures, and print nothing at all in 0 columns.
_LEAST_COLUMNS = 80


def _print_human(results: list[Report | tuple[str, HubauditError]], stream: Any, *, with_explanation: bool) -> None:
    from rich.console import Console

    from hubaudit.report.human import render

    console = Console(file=stream if stream is not sys.stdout else None, highlight=False)
    console.width = max(console.width, _LEAST_COLUMNS)
    reports = [result for result in results if not isinstance(result, tuple)]
    for at, report in enumerate(reports):
        with console.capture() as capture:
            if at:
                console.rule()
            console.print(render(report, with_explanation=with_explanation))
        # rich fills lines up with blanks, which a terminal does not show and a file should not hold
        stream.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _text(results: list[Report | tuple[str, HubauditError]], output_format: str) -> str:
    if output_format in ("csv", "markdown"):
        return _table_text(results, output_format)
    if output_format in _FOR_MACHINES:
        return _machine_text(results, output_format)
    from hubaudit.report.json_text import json_text
    from hubaudit.report.wire import error_to_wire, to_wire

    rows = [error_to_wire(*result) if isinstance(result, tuple) else to_wire(result) for result in results]
    if output_format == "jsonl":
        return "".join(json_text(row) + "\n" for row in rows)
    return json_text(rows[0] if len(rows) == 1 else rows, indent=2) + "\n"


def _table_text(results: list[Report | tuple[str, HubauditError]], output_format: str) -> str:
    from hubaudit.report.tabular import error_to_markdown, to_csv, to_markdown

    if output_format == "csv":
        return to_csv(results)
    return "\n".join(
        error_to_markdown(*result) if isinstance(result, tuple) else to_markdown(result) for result in results
    )


def _machine_text(results: list[Report | tuple[str, HubauditError]], output_format: str) -> str:
    """What a machine reads. In a step of GitHub Actions the summary of the run gets its page too."""
    if output_format == "agent":
        from hubaudit.report.agent import to_agent

        return to_agent(results)
    if output_format == "sarif":
        from hubaudit.report.sarif import to_sarif

        return to_sarif(results)
    from hubaudit.report.github import to_annotations, to_summary

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        _append(Path(summary), to_summary(results))
    return to_annotations(results)


def _append(path: Path, text: str) -> None:
    from hubaudit.errors import UsageError

    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as page:
            page.write(text)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`, which GITHUB_STEP_SUMMARY names: {error.strerror}") from None


def _end(results: list[Report | tuple[str, HubauditError]], gate: Gate) -> int:
    """Say what failed, after the data; the exit code is that of the first failure, else of the gate."""
    from hubaudit.cli.failures import say_failure

    failures = [result[1] for result in results if isinstance(result, tuple)]
    for error in failures:
        say_failure(error)
    if failures:
        return failures[0].exit_code
    return gate.exit_code(results)
