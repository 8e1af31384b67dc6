"""The ways an audit can end without an answer, and the exit codes that are promised for them."""

from __future__ import annotations

import pytest

from hubaudit import errors
from hubaudit.errors import HubauditError, MalformedFileError

#: As the command line's documentation lists them; part of the interface.
PROMISED = {
    "HubauditError": (1, "internal"),
    "UsageError": (2, "usage"),
    "NotFoundError": (3, "not_found"),
    "AccessError": (3, "access"),
    "NetworkError": (4, "network"),
    "RateLimitError": (4, "rate_limit"),
    "OfflineError": (4, "offline"),
    "CannotAuditError": (5, "cannot_audit"),
    "MalformedFileError": (5, "malformed_file"),
}


def test_every_error_has_its_code_and_its_name() -> None:
    """None is missing, none is new, and programs can tell them apart by ``kind``."""
    found = {
        name: (kind.exit_code, kind.kind)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, HubauditError)
    }
    assert found == PROMISED
    assert len({kind for _, kind in found.values()}) == len(found)


def test_one_except_catches_all() -> None:
    """And a rate limit is a network failure, a malformed file one that cannot be audited."""
    assert issubclass(errors.RateLimitError, errors.NetworkError)
    assert issubclass(errors.OfflineError, errors.NetworkError)
    assert issubclass(errors.MalformedFileError, errors.CannotAuditError)


@pytest.mark.parametrize("name", [name for name in PROMISED if name != "MalformedFileError"])
def test_an_error_carries_message_and_hint(name: str) -> None:
    """``str`` is the line; the hint may be empty."""
    kind = getattr(errors, name)
    error = kind("what happened", hint="what to do")
    assert (str(error), error.message, error.hint) == ("what happened", "what happened", "what to do")
    assert kind("x").hint == ""


def test_a_malformed_file_is_named_with_the_place() -> None:
    """The path, the byte where one can be named, and the reason, apart and in one line."""
    error = MalformedFileError("a.safetensors", "is broken", offset=8, hint="upload it again")
    assert str(error) == "`a.safetensors` at byte 8: is broken"
    assert (error.path, error.reason, error.offset, error.hint) == ("a.safetensors", "is broken", 8, "upload it again")
    assert str(MalformedFileError("a", "is broken")) == "`a`: is broken"


def test_what_is_echoed_of_an_input_is_cut() -> None:
    """A word of 5,000 characters and a line of 100,000 fill no screen, in message and hint, and short ones stay as they are."""
    error = HubauditError(f"no file `{'x' * 5_000}` beside `y`", hint="z" * 5_000)
    assert error.message == str(error) == f"no file `{'x' * 236}... beside `y`"
    assert len(error.hint) == 240
    assert len(HubauditError("many words " * 10_000).message) == 2_000
    path = f"no such file: /{'folder/' * 30}x"
    assert HubauditError(path).message == path
