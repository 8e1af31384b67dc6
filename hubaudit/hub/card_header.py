"""The YAML header of a model card, as huggingface_hub reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.hub.beside import header_of

if TYPE_CHECKING:
    from hubaudit.types import Json


def card_header(text: str) -> dict[str, Json]:
    """The header's keys; empty where there is none, or it is no YAML. An error in ``model-index`` costs only that key."""
    if not text.lstrip("\ufeff \t\r\n").startswith("---"):
        return {}  # the library would warn
    if not isinstance(header_of(text.lstrip("\ufeff")), dict):
        return {}  # the library follows merge keys, which can ask for more values than any memory holds
    from huggingface_hub import ModelCard

    try:
        header: dict[str, Json] = ModelCard(text, ignore_metadata_errors=True).data.to_dict()  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - yaml's own errors, and whatever a strange header makes the library raise
        return {}
    return header
