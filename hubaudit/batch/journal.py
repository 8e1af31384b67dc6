"""What lasts of a run: a directory with the plan, and one line for each model that is done, on the disk before it counts."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from hubaudit._version import __version__
from hubaudit.batch.index import Entry, Index
from hubaudit.batch.lock import DirectoryLock
from hubaudit.errors import CannotAuditError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from hubaudit.batch.plan import Item, Outcome, Plan

JOURNAL = "journal.jsonl"
PLAN = "plan.json"
_VERSION = 1
_TAIL_BYTES = 1 << 16


class Journal:
    """The journal of one directory, open for one writer.

    A line is appended and fsynced before its model counts as done, so whatever ends the process, at most the models under way are done
    again. A last line that was cut off is removed.

    Raises:
        UsageError: another run writes there, it holds a run with another plan, or it cannot be written.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(folder)
        except OSError as error:
            raise _unwritable(folder, error) from None
        try:
            _agree(folder / PLAN, plan)
            self.torn_bytes = _mend(folder / JOURNAL)
            self.index = Index.of(folder / JOURNAL)
            self._file = os.open(folder / JOURNAL, os.O_WRONLY | os.O_APPEND)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            self._lock.release()
            raise _unwritable(folder, error) from None
        except BaseException:
            self._lock.release()
            raise
        self.folder = folder

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        self.index.close()
        self._lock.release()

    def claim(self, item: Item, again: Collection[str]) -> bool:
        """Whether ``item`` is still to be done; asked twice for one name, the second answer is no."""
        return self.index.claim(item.name, again)

    def append(self, outcomes: Sequence[Outcome]) -> None:
        """Write the rows and wait until they are on the disk. Several that came at once share one wait.

        Raises:
            UsageError: the disk is full, or gone.
        """
        lines = [_line(outcome) for outcome in outcomes]
        try:
            _write_all(self._file, b"".join(lines))
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        rows = []
        for outcome, line in zip(outcomes, lines, strict=True):
            rows.append(Entry(outcome.item.name, self._size, outcome.state, outcome.item.position))
            self._size += len(line)
        self.index.put(rows)


class Rows:
    """The rows of a directory, for reading: each name's last, in the order of the list. A run may be writing to it.

    Raises:
        NotFoundError: there is no journal.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        try:
            self.plan = _plan(json.loads((folder / PLAN).read_bytes()))
            self.index = Index.of(self._path)
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise NotFoundError(
                f"`{folder}` holds no batch: {reason}", hint="`hubaudit batch LIST -o DIR` makes one"
            ) from None

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.index.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            for entry in self.index.in_order():
                yield _row_at(file, entry)

    def find(self, name: str) -> dict[str, Any] | None:
        """The last row of ``name``."""
        entry = self.index.find(name)
        if entry is None:
            return None
        with self._path.open("rb") as file:
            return _row_at(file, entry)


def _plan(kept: Any) -> dict[str, Any]:
    if not isinstance(kept, dict) or not all(isinstance(kept.get(key), list) for key in ("workloads", "hardware")):
        raise ValueError(f"{PLAN} is no plan")
    return kept


@contextmanager
def as_written(folder: Path) -> Iterator[None]:
    """For what reads rows and the plan key by key: a journal that somebody edited is told to be that.

    Raises:
        CannotAuditError: they are not what a batch writes.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CannotAuditError(
            f"`{folder}` holds rows that no batch writes: {type(error).__name__} {error}",
            hint="run the list anew into another directory with -o",
        ) from error


def _row_at(file: Any, entry: Entry) -> dict[str, Any]:
    file.seek(entry.offset)
    row: dict[str, Any] = json.loads(file.readline())
    return row


def _line(outcome: Outcome) -> bytes:
    """The envelope with the document as it is: an answer out of the cache is not parsed to be written again."""
    envelope = {
        "name": outcome.item.name,
        "position": outcome.item.position,
        "state": outcome.state,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 3),
    }
    head = json.dumps(envelope, separators=(",", ":"))[:-1].encode("ascii")
    return head + b',"document":' + outcome.document + b"}\n"


def _write_all(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def _agree(path: Path, plan: Plan) -> None:
    """Keep the plan, or see that the one that is kept is the same.

    Raises:
        UsageError: it is another.
    """
    asked = {"hubaudit_batch": _VERSION, **plan.as_json()}
    if path.exists():
        try:
            kept = json.loads(path.read_bytes())
            if not isinstance(kept, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError):
            raise UsageError(f"`{path}` is no plan of a batch", hint="give another directory with -o") from None
        kept.pop("tool", None)
        if kept != json.loads(json.dumps(asked)):
            raise UsageError(
                f"`{path.parent}` holds a run with other workloads or devices",
                hint="repeat its options to go on with it, or give another directory with -o",
            )
        return
    draft = path.with_name(f".{token_hex(8)}.part")
    try:
        with draft.open("wb") as file:
            file.write(json.dumps(asked | {"tool": f"hubaudit {__version__}"}, indent=2).encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _mend(path: Path) -> int:
    """Make the journal end with a whole line; returns how many bytes of a torn one were removed."""
    is_new = not path.exists()
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        size = os.lseek(file, 0, os.SEEK_END)
        kept = size
        while kept and (end := _last_newline(file, kept)) != kept:
            kept = end if end is not None else max(0, kept - _TAIL_BYTES)
        if kept != size:
            os.ftruncate(file, kept)
        os.fsync(file)
    finally:
        os.close(file)
    if is_new:
        _sync_folder(path.parent)
    return size - kept


def _last_newline(file: int, end: int) -> int | None:
    """The offset after the last line end before ``end``, ``None`` where the last piece before it holds none."""
    start = max(0, end - _TAIL_BYTES)
    os.lseek(file, start, os.SEEK_SET)
    at = os.read(file, end - start).rfind(b"\n")
    return None if at < 0 else start + at + 1


def _sync_folder(folder: Path) -> None:
    """Make a new name last; a system that cannot open folders does so by itself."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write to `{folder}`: {error.strerror or error}", hint="give another directory with -o")
