"""How a failed run ends: one line, a blank line, a hint, and the exit code."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from hubaudit.cli import INTERRUPTED
from hubaudit.errors import HubauditError, clipped

if TYPE_CHECKING:
    from typing import TextIO

#: What a full disk, a quota, a limit on files, a broken device or a closed stream answers to who writes.
_CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def report_failure(error: BaseException) -> int:
    """Print ``error`` for people on stderr and return the exit code. Tracebacks are for HUBAUDIT_DEBUG=1 only."""
    if isinstance(error, SystemExit):
        return _say(error.code, "", 1) if isinstance(error.code, str) else error.code or 0
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if _is_interruption(error):
        return _say("interrupted", "", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        drop(sys.stdout)
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
    return _unforeseen(error)


def drop(stream: TextIO) -> None:
    """Let what is still to be written go nowhere: who would read it has gone, or has no room, and the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _unforeseen(error: BaseException) -> int:
    """What no command foresaw: a stream that takes no more, or a bug."""
    if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
        return _say(f"cannot write: {error.strerror}", "", 2)
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

    with suppress(OSError):  # nobody can be told: the exit code says it
        click.echo(f"error: {clean(clipped(' '.join(message.split())))}", err=True)
        if hint:
            click.echo(f"\nhint: {clean(clipped(hint))}", err=True)
    return code
