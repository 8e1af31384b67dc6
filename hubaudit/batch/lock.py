"""One writer for a directory: a lock that the system lets go of when its process ends, however it ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = ".lock"


class DirectoryLock:
    """Held from making it until :meth:`release`.

    Raises:
        UsageError: another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(self._file)
        except OSError:
            holder = _holder(self._file)
            os.close(self._file)
            raise UsageError(
                f"another run{holder} is writing to `{folder}`", hint="wait for it, or give another directory with -o"
            ) from None
        with suppress(OSError):  # who holds it is said for people only
            os.ftruncate(self._file, 0)
            os.write(self._file, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let the next one in."""
        os.close(self._file)


def _holder(file: int) -> str:
    with suppress(OSError, ValueError):
        return f" (process {int(os.read(file, 20))})"
    return ""


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
