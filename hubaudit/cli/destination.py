"""Where an answer goes: the file that `-o` names, or standard output."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def opened(output: str | None) -> Iterator[IO[Any]]:
    """The stream to write to; standard output where no file is named, or ``-``. Half a character, which JSON can hold and UTF-8 cannot, is written as JSON spells it.

    Raises:
        UsageError: it cannot be written.
    """
    from hubaudit.errors import UsageError

    try:
        with click.open_file(output or "-", "w", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "standard output" if output in (None, "", "-") else f"`{output}`"
        raise UsageError(f"cannot write {where}: {error.strerror}") from None
