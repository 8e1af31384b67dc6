"""What the Hub answered to one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: ``content`` holds at most the bytes asked for, ``is_whole`` says whether that was all, ``url`` where redirects led.

    ``commit`` is what the Hub itself, not the storage that it may send on to, said the file is of.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    is_whole: bool
    url: str
    commit: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether this is what was asked for, and no refusal."""
        return self.status in (200, 206)
