"""``--exact`` and what goes with it: the workload traced on fake tensors, its timeline drawn, its snapshot written."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.types import Report, RepoSnapshot

    Traced = Callable[[RepoSnapshot, Report], Report]

F = TypeVar("F", bound="Callable[..., object]")
_CONF = "PYTORCH_CUDA_ALLOC_CONF"


class ExactChoice(NamedTuple):
    """What of exact mode was asked for."""

    wanted: bool
    timeline: str | None
    memory_snapshot: str | None


def exact_options(command: F) -> F:
    """Run the model's own code on fake tensors, and what to make of the run."""
    for option in reversed(
        (
            click.option(
                "--exact",
                is_flag=True,
                help="Also run the model's own code on tensors without data and replay PyTorch's allocator: max_memory_allocated and "
                "max_memory_reserved to the byte. Needs torch and transformers (pip install 'hubaudit[exact]'), no GPU, no weights.",
            ),
            click.option(
                "--timeline",
                metavar="FILE",
                help="exact: draw memory over the run by component, as FILE.svg or FILE.html.",
            ),
            click.option(
                "--memory-snapshot",
                metavar="FILE",
                help="exact: write FILE.pickle, which PyTorch's memory_viz page opens.",
            ),
        )
    ):
        command = option(command)
    return command


def chosen(*, wanted: bool, timeline: str | None, memory_snapshot: str | None, repos: int) -> ExactChoice:
    """The choice, checked before anything is read.

    Raises:
        click.UsageError: options that do not go together.
    """
    for name, path in (("--timeline", timeline), ("--memory-snapshot", memory_snapshot)):
        if path is not None and not wanted:
            raise click.UsageError(f"{name} is for --exact")
        if path is not None and repos > 1:
            raise click.UsageError(f"{name} takes one model at a time")
    if timeline is not None and Path(timeline).suffix not in (".svg", ".html"):
        raise click.UsageError("--timeline writes .svg or .html, by the file's name")
    return ExactChoice(wanted, timeline, memory_snapshot)


def with_exact(snapshot: RepoSnapshot, report: Report, choice: ExactChoice) -> Report:
    """The report with its exact part, or with the reason why this model has none, and the files written that were asked for.

    Raises:
        HubauditError: what was asked for is outside exact mode, a library is missing, or a file was asked for that cannot be written.
    """
    from hubaudit.errors import CannotAuditError
    from hubaudit.exact.auditing import exact_audit
    from hubaudit.exact.settings import parse_settings

    conf = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get(_CONF, "")
    try:
        made = exact_audit(snapshot, report, parse_settings(conf))
    except CannotAuditError as error:
        if choice.timeline or choice.memory_snapshot:
            raise
        return replace(report, exact_unknown=error.message)
    if choice.timeline is not None:
        from hubaudit.exact.timeline import to_html, to_svg

        draw = to_html if choice.timeline.endswith(".html") else to_svg
        title = f"{report.subject.repo_id}: {report.workload.mode}"
        _write(choice.timeline, draw(made.replayed, made.trace, title, made.memory.label).encode())
    if choice.memory_snapshot is not None:
        from hubaudit.exact.snapshot import to_pickle

        _write(choice.memory_snapshot, to_pickle(made.replayed, made.trace))
    return replace(report, exact=made.memory)


def _write(path: str, content: bytes) -> None:
    from hubaudit.errors import UsageError

    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
