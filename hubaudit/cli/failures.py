"""How a failed run ends: one line, a blank line, a hint, and the exit code."""

from __future__ import annotations

import os
import sys

import click

from hubaudit.cli import INTERRUPTED
from hubaudit.errors import HubauditError, clipped


def report_failure(error: BaseException) -> int:
    """Print ``error`` for people on stderr and return the exit code. Tracebacks are for HUBAUDIT_DEBUG=1 only."""
    if isinstance(error, SystemExit):
        return _say(error.code, "", 1) if isinstance(error.code, str) else error.code or 0
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if _is_interruption(error):
        return _say("interrupted", "", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # what reads us has gone; do not complain again at exit
        return 0
    if isinstance(error, HubauditError):
        return _say(error.message, error.hint, error.exit_code)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return error.exit_code
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "hubaudit"
        return _say(error.format_message(), f"`{path} --help` lists what there is", error.exit_code)
    if isinstance(error, click.ClickException):
        return _say(error.format_message(), "", 2)
    if os.environ.get("HUBAUDIT_DEBUG"):
        raise error
    return _say(
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug; HUBAUDIT_DEBUG=1 shows the traceback, and a bundle (`hubaudit bundle`) makes the best report",
        1,
    )


def _is_interruption(error: BaseException) -> bool:
    """Whether the user stopped the run: Ctrl-C in the middle of a step can make its clean-up fail, and that failure is what arrives."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (KeyboardInterrupt, click.Abort)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def say_failure(error: HubauditError) -> None:
    """Print one subject's failure on stderr, where the run goes on with the next."""
    _say(error.message, error.hint, error.exit_code)


def _say(message: str, hint: str, code: int) -> int:
    from hubaudit.report.phrases import clean

    click.echo(f"error: {clean(clipped(' '.join(message.split())))}", err=True)
    if hint:
        click.echo(f"\nhint: {clean(clipped(hint))}", err=True)
    return code
