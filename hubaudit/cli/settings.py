"""The project's own settings: ``.hubaudit.toml``, or ``[tool.hubaudit]`` in ``pyproject.toml``, of the folder one works in or one above it.

A folder that is audited has no say: what a stranger's repository holds cannot silence the audit of it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubaudit.cli.gate import FAIL_ON, Gate
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN, SHARED = ".hubaudit.toml", "pyproject.toml"
_SEVERITIES = ("error", "warning", "info")
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a project asks for: ``fail-on``, ``ignore``, ``severity`` by rule, and for its model cards ``files``, ``gpus`` and ``training``."""

    where: str = ""
    fail_on: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: Mapping[str, str] = field(default_factory=dict)
    card_files: tuple[str, ...] = ()
    card_gpus: tuple[str, ...] = ()
    card_training: bool = False


def settings(folder: Path | None = None) -> Settings:
    """The settings that hold in ``folder``, by default the current one: the nearest file upwards, as far as the root of the git repository.

    Raises:
        UsageError: the file is no TOML, or holds what nobody reads.
    """
    try:
        start = (folder or Path.cwd()).absolute()
    except OSError:  # the current folder is gone, or is not ours to see
        return Settings()
    for place in (start, *start.parents):
        for name in (OWN, SHARED):
            table = _table(place / name, is_shared=name == SHARED)
            if table is not None:
                return _settings(table, str(place / name))
        if (place / ".git").exists():
            break
    return Settings()


def check_rules(names: Iterable[str], where: str) -> None:
    """Raise where one is no rule's id, for a misspelt one would ignore nothing and say nothing."""
    from hubaudit.findings import rule_ids

    known = rule_ids()
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`hubaudit rules` lists them"
            raise UsageError(f"{where}: no rule is called `{name}`", hint=hint)


def _table(path: Path, *, is_shared: bool) -> dict[str, Any] | None:
    content = _content(path)
    if content is None or (is_shared and b"hubaudit" not in content):
        return None
    try:
        whole = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or a number without end
        if is_shared:  # a project's broken pyproject.toml is for its other tools to tell
            return None
        raise UsageError(f"`{path}` is no TOML: {error}") from None
    if not is_shared:
        return whole
    tools = whole.get("tool")
    table = tools.get("hubaudit") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else None


def _content(path: Path) -> bytes | None:
    """What the file holds; ``None`` where there is none. Git makes links, and a link may lead to a device that never ends."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError:
        return None
    if len(content) > _MAX_BYTES:
        raise UsageError(f"`{path}` is larger than {_MAX_BYTES:,} bytes")
    return content


def _settings(table: dict[str, Any], where: str) -> Settings:
    card = table.get("card", {})
    if not isinstance(card, dict):
        raise UsageError(f"`{where}`: card is no table")
    _check_keys(table, ("fail-on", "ignore", "severity", "card"), where)
    _check_keys(card, ("files", "gpus", "training"), f"{where}, card")
    severity = table.get("severity", {})
    if not isinstance(severity, dict) or not set(map(str, severity.values())) <= set(_SEVERITIES):
        raise UsageError(f"`{where}`: severity is a table of rules and one of {', '.join(_SEVERITIES)}")
    found = Settings(
        where=where,
        fail_on=_words(table, "fail-on", where),
        ignore=_words(table, "ignore", where),
        severity=severity,
        card_files=_words(card, "files", where),
        card_gpus=_words(card, "gpus", where),
        card_training=card.get("training") is True,
    )
    check_rules((*found.ignore, *found.severity), f"`{where}`")
    if not set(found.fail_on) <= set(FAIL_ON):
        raise UsageError(f"`{where}`: fail-on is one or more of {', '.join(FAIL_ON)}")
    return found


def _check_keys(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"`{where}`: nobody reads the key `{key}`", hint=f"there are {', '.join(known)}")


def _words(table: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"`{where}`: {key} is a list of words")
    return tuple(words)


def gate_of(fail_on: tuple[str, ...], ignore: tuple[str, ...]) -> Gate:
    """The gate that the options and the project's settings describe together. Options that are given replace ``fail-on``, and add to ``ignore``.

    Raises:
        UsageError: a rule that does not exist, or settings that make no sense.
    """
    own = settings()
    check_rules(ignore, "--ignore")
    return Gate(fail_on=fail_on or own.fail_on, ignore=frozenset((*ignore, *own.ignore)), severity=own.severity)
