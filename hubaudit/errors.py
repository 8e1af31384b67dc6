"""Every way an audit can end without an answer: one line, one hint, one exit code."""

from __future__ import annotations

import re

_LONGEST_WORD = 240
_LONGEST_LINE = 2_000
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")


def clipped(line: str) -> str:
    """What a message echoes of an input cannot fill the screen: a longer word ends in ``...``, and so does a longer line."""
    line = _LONG_WORD.sub(lambda word: f"{word[0][: _LONGEST_WORD - 3]}...", line)
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."


class HubauditError(Exception):
    """Base of all errors that hubaudit raises on purpose.

    ``str(error)`` is the one line for the user, ``hint`` what to try next (may be empty), ``exit_code`` the documented code of the
    command line, ``kind`` the stable name that JSON output carries. Long words of an input are cut in both (:func:`clipped`).
    """

    exit_code = 1
    kind = "internal"

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = clipped(message)
        self.hint = clipped(hint)
        super().__init__(self.message)


class UsageError(HubauditError):
    """The command or the arguments make no sense together."""

    exit_code = 2
    kind = "usage"


class NotFoundError(HubauditError):
    """No such repository, revision, file or folder."""

    exit_code = 3
    kind = "not_found"


class AccessError(HubauditError):
    """The repository exists, or may, but this user may not read it: gated, private, or a bad token."""

    exit_code = 3
    kind = "access"


class NetworkError(HubauditError):
    """The Hub could not be reached, or kept failing."""

    exit_code = 4
    kind = "network"


class RateLimitError(NetworkError):
    """The Hub's quota is used up."""

    kind = "rate_limit"


class OfflineError(NetworkError):
    """Offline was asked for, and the cache does not hold what is needed."""

    kind = "offline"


class CannotAuditError(HubauditError):
    """What was read gives no answer: no weights and no config, or none that can be understood."""

    exit_code = 5
    kind = "cannot_audit"


class MalformedFileError(CannotAuditError):
    """A file that breaks its own format's rules. ``path`` names it; ``offset`` is the byte where it goes wrong, if one can be named.

    ``is_cut_off`` says that the file ends before what it announces.
    """

    kind = "malformed_file"

    def __init__(
        self, path: str, reason: str, *, offset: int | None = None, hint: str = "", is_cut_off: bool = False
    ) -> None:
        at = "" if offset is None else f" at byte {offset}"
        super().__init__(f"`{path}`{at}: {reason}", hint=hint)
        self.path = path
        self.reason = reason
        self.offset = offset
        self.is_cut_off = is_cut_off
