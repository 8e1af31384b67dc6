"""`hubaudit compare A B C`: models side by side, and one model at two revisions with what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hubaudit.cli.audit import command as audit_command
from hubaudit.cli.audit import devices
from hubaudit.cli.destination import opened
from hubaudit.cli.options import access_options, hardware_options

if TYPE_CHECKING:
    from hubaudit.report.compare import Compared
    from hubaudit.types import Hardware, Workload

_FORMATS = ("human", "json", "csv", "markdown")
_AT_LEAST = 2
_SIDE_BY_SIDE = 4


@click.command("compare")
@click.argument("repos", nargs=-1, required=True, metavar="REPO REPO...")
@hardware_options
@click.option(
    "--format", "output_format", type=click.Choice(_FORMATS), default="human", show_default=True, help="What to print."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, allow_dash=True), help="Write to FILE instead of stdout."
)
@access_options
def command(
    repos: tuple[str, ...],
    output_format: str,
    as_json: bool,
    output: str | None,
    gpu_names: tuple[str, ...],
    memories: tuple[str, ...],
    **options: Any,
) -> int:
    """Set models side by side: what each is, and what memory it needs for the same workload.

    `hubaudit compare ORG/NAME@REV ORG/NAME@REV` tells what changed between two revisions: facts, memory, configs, tensors and files.
    """
    from hubaudit.types import Workload

    if len(repos) < _AT_LEAST:
        raise click.UsageError("compare takes two models or more")
    access = {name: options.pop(name) for name in ("revision", "token", "cache_dir", "offline", "file")}
    options["llm_int8_skip_modules"] = options.get("llm_int8_skip_modules") or None
    asked = Workload(**options)
    subjects = _read(repos, asked, devices(gpu_names, memories, must_fit=False), access)
    text = _text(subjects, "json" if as_json else output_format)
    with opened(output) as stream:
        stream.write(text)
    return _end(subjects)


def _add_workload_options() -> None:
    """The options of an audit that make a workload, under the same names."""
    own = {param.name for param in command.params}
    wanted = [param for param in audit_command.params if param.name in _workload_fields() - own]
    command.params[1:1] = wanted


def _workload_fields() -> frozenset[str]:
    from hubaudit.types import Workload

    return frozenset(Workload.__slots__)


_add_workload_options()


def _read(
    repos: tuple[str, ...], asked: Workload, hardware: tuple[Hardware, ...], access: dict[str, Any]
) -> list[Compared]:
    from concurrent.futures import ThreadPoolExecutor

    from hubaudit.auditing import audit_snapshot
    from hubaudit.errors import HubauditError
    from hubaudit.hub import fetch
    from hubaudit.report.compare import Compared

    subjects = []
    pool = ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE)
    try:
        reading = {repo: pool.submit(fetch, repo, **access) for repo in dict.fromkeys(repos)}
        for repo in repos:
            try:
                snapshot = reading[repo].result()
                subjects.append(Compared(name=repo, audited=(snapshot, audit_snapshot(snapshot, asked, hardware))))
            except HubauditError as error:
                subjects.append(Compared(name=repo, error=error))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return subjects


def _text(subjects: list[Compared], output_format: str) -> str:
    from hubaudit.report import compare

    if output_format == "csv":
        from hubaudit.report.tabular import to_csv

        failed = [(one.name, one.error) for one in subjects if one.error is not None]
        return to_csv([*(one.audited[1] for one in subjects if one.audited is not None), *failed])
    return {"human": compare.to_text, "json": compare.to_json, "markdown": compare.to_markdown}[output_format](subjects)


def _end(subjects: list[Compared]) -> int:
    from hubaudit.cli.failures import say_failure

    failures = [one.error for one in subjects if one.error is not None]
    for error in failures:
        say_failure(error)
    return failures[0].exit_code if failures else 0
