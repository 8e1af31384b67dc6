"""Releases of transformers: which of them a workload runs under, and what sets it apart. The rows are in transformers_releases.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hubaudit.data import table
from hubaudit.errors import UsageError

_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What generate() of one release and those after it does; the fields are those of the table."""

    since: str
    all_logits: bool
    pool_is_warmed: bool
    rotary_tables: bool
    gathers_experts: bool
    source: str


def release_of(version: str | None) -> Release:
    """The row that holds for a version, for none the newest.

    Raises:
        UsageError: it is no version, or older than all rows.
    """
    rows = [
        Release(
            since=row["since"],
            all_logits=row["logits"] == "all",
            pool_is_warmed=row["pool_is_warmed"],
            rotary_tables=row["rotary_tables"],
            gathers_experts=row["gathers_experts"],
            source=row["source"],
        )
        for row in table("transformers_releases.toml")["release"]
    ]
    if version is None:
        return rows[-1]
    if not _VERSION.fullmatch(version):
        raise UsageError(f"`{version}` is no version of transformers", hint="as in --runtime-version 4.46")
    held = [row for row in rows if _numbers(row.since) <= _numbers(version)]
    if not held:
        raise UsageError(
            f"transformers {version} is older than what is described",
            hint=f"--runtime-version {rows[0].since} or later",
        )
    return held[-1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split("."))
