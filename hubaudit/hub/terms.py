"""The header of a model card → on what terms the repository is offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.types import Terms

if TYPE_CHECKING:
    from hubaudit.types import Json

#: Keys of the header with which the Hub's gate says what one agrees to (docs/hub/models-gated.md of huggingface/hub-docs).
_GATE_KEYS = ("extra_gated_prompt", "extra_gated_fields", "extra_gated_heading", "extra_gated_description")


_MAX_CHARACTERS = 5_000  # longer than any licence is called, or its address


def terms_of(header: Json, *, gated: Json = None) -> Terms:
    """The terms that a card's header names; ``gated`` is the Hub's own word (``false``, ``"auto"``, ``"manual"``), ``None`` where nobody asked it."""
    said = header if isinstance(header, dict) else {}
    licence, link = said.get("license"), said.get("license_link")
    if isinstance(licence, list):  # a header may name several
        licence = ", ".join(word for word in licence if isinstance(word, str))
    return Terms(
        licence=_said(licence),
        licence_link=_said(link),
        gated=None if gated is None else gated is not False,
        gate_text=any(said.get(key) for key in _GATE_KEYS),
    )


def _said(value: Json) -> str | None:
    return value if isinstance(value, str) and value.strip() and len(value) <= _MAX_CHARACTERS else None
