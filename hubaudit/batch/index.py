"""Which row of a journal is a name's last, and which names a run has claimed: on disk, so that memory does not grow with the list."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

_AT_ONCE = 1000


class Entry(NamedTuple):
    """A name's last row: where its line begins in the journal, how it ended, and its place in the list."""

    name: str
    offset: int
    state: str
    position: int


class Index:
    """A table of names in a file of its own that ends with the process: the journal alone is what lasts."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("", isolation_level=None)
        for line in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA cache_size = -16000",
            "CREATE TABLE rows (name BLOB PRIMARY KEY, offset INTEGER, state TEXT, position INTEGER, claimed INTEGER DEFAULT 0)"
            " WITHOUT ROWID",
        ):
            self._rows.execute(line)

    @classmethod
    def of(cls, journal: Path) -> Index:
        """The index of all whole lines that ``journal`` holds."""
        index = cls()
        index.put(entries(journal))
        return index

    def put(self, rows: Iterable[Entry]) -> None:
        """Take over rows as the last of their names."""
        self._rows.execute("BEGIN")
        self._rows.executemany(
            "INSERT INTO rows (name, offset, state, position) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET offset = excluded.offset, state = excluded.state, position = excluded.position",
            ((_key(name), *rest) for name, *rest in rows),
        )
        self._rows.execute("COMMIT")

    def claim(self, name: str, again: Collection[str]) -> bool:
        """Whether ``name`` is to be done now: not asked for before in this run, and not done, or ended in a way that is to be tried ``again``."""
        key = _key(name)
        row = self._rows.execute("SELECT state, claimed FROM rows WHERE name = ?", (key,)).fetchone()
        if row is None:
            self._rows.execute("INSERT INTO rows (name, claimed) VALUES (?, 1)", (key,))
            return True
        state, claimed = row
        if claimed or (state is not None and state not in again):
            return False
        self._rows.execute("UPDATE rows SET claimed = 1 WHERE name = ?", (key,))
        return True

    def find(self, name: str) -> Entry | None:
        """The last row of ``name``."""
        row = self._rows.execute(
            "SELECT name, offset, state, position FROM rows WHERE name = ? AND offset IS NOT NULL", (_key(name),)
        ).fetchone()
        return None if row is None else Entry(name, *row[1:])

    def counts(self) -> dict[str, int]:
        """How many names ended in each state."""
        return dict(self._rows.execute("SELECT state, COUNT(*) FROM rows WHERE offset IS NOT NULL GROUP BY state"))

    def in_order(self) -> Iterator[Entry]:
        """Every name's last row, in the order of the list."""
        rows = self._rows.execute(
            "SELECT name, offset, state, position FROM rows WHERE offset IS NOT NULL ORDER BY position, offset"
        )
        while some := rows.fetchmany(_AT_ONCE):
            yield from (Entry(row[0].decode("utf-8", "surrogatepass"), *row[1:]) for row in some)

    def close(self) -> None:
        """Drop the table."""
        self._rows.close()


def _key(name: str) -> bytes:
    """A name as the table holds it: JSON can spell half a character, which is no text to sqlite."""
    return name.encode("utf-8", "surrogatepass")


def entries(journal: Path) -> Iterator[Entry]:
    """Every whole line of a journal; one that is no row, such as a power cut leaves, is passed over."""
    offset = 0
    with journal.open("rb") as file:
        for line in file:
            entry = _entry(line, offset) if line.endswith(b"\n") else None
            if entry is not None:
                yield entry
            offset += len(line)


def _entry(line: bytes, offset: int) -> Entry | None:
    try:
        row = json.loads(line)
        name, state, position = row["name"], row["state"], row["position"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(position, int) or not -(2**63) <= position < 2**63:
        return None
    if isinstance(name, str) and isinstance(state, str) and state.isprintable():  # half a character is not
        return Entry(name, offset, state, position)
    return None
