"""What lies beside a model in a folder and costs nothing to read there: the card with its header, and the tokenizer's files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hubaudit.errors import HubauditError
from hubaudit.formats.documents import MAX_CONFIG_BYTES, parse_object
from hubaudit.formats.tokenizers import MAX_TOKENIZER_BYTES, tokenizer_facts
from hubaudit.hub.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.hub.reader import RepoReader
    from hubaudit.types import Json, Terms, TokenizerFacts

CARD = "README.md"
_MAX_CARD_BYTES = 4_000_000
_MAX_HEADER_CHARACTERS = 200_000
_MAX_DEPTH = 50
#: Where huggingface_hub looks for the header (repocard.py, REGEX_YAML_BLOCK).
_HEADER = re.compile(r"\A\s*---[\r\n]+(.*?)[\r\n]+---(?:\r\n|\r|\n|\Z)", re.DOTALL)
#: A merge key, or the tag of one, wherever it stands.
_MERGE = re.compile(r"<<|tag:yaml\.org,2002:merge|!!merge|%TAG")
_TOKENIZER = "tokenizer.json"
_SETTINGS = "tokenizer_config.json"


def card_in(reader: RepoReader, *, is_whole: bool) -> tuple[str | None, Terms | None]:
    """The card's text, and the terms that its header names; ``None`` where there is no card, or it cannot be read.

    Where the folder ``is_whole`` and not just what somebody downloaded of a repository, a card that is not there names no terms.
    """
    if CARD not in {file.path for file in reader.files}:
        return None, terms_of(None) if is_whole and reader.files else None
    try:
        text = reader.read(CARD, _MAX_CARD_BYTES).decode("utf-8-sig", errors="replace")
    except HubauditError:
        return None, None
    return text, terms_of(header_of(text))


def header_of(text: str) -> Json:
    """The YAML header of a card as JSON values; ``None`` where there is none, or it is no YAML.

    Merge keys (``<<``), which no card needs, are not followed: nine lines of them, each naming the one before nine times, ask for 400 million values.
    """
    found = _HEADER.match(text)
    if found is None or len(found[1]) > _MAX_HEADER_CHARACTERS:
        return None
    if _MERGE.search(found[1]):
        return None
    import yaml  # a need of huggingface_hub; only folders with a card pay for it

    try:
        if _is_too_deep(yaml.parse(found[1], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))):
            return None
        header: Json = yaml.load(found[1], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return header


def _is_too_deep(events: Iterable[object]) -> bool:
    """Whether lists and keys lie in one another deeper than any card needs: the loader in C ends the process where its stack does."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if depth > _MAX_DEPTH:
            return True
    return False


def tokenizer_in(reader: RepoReader) -> TokenizerFacts | None:
    """What the tokenizer's files say; ``None`` where there are none that can be read."""
    paths = {file.path for file in reader.files}
    vocabulary = _object(reader, _TOKENIZER, MAX_TOKENIZER_BYTES) if _TOKENIZER in paths else None
    settings = _object(reader, _SETTINGS, MAX_CONFIG_BYTES) if _SETTINGS in paths else None
    if vocabulary is None and settings is None:
        return None
    return tokenizer_facts(vocabulary, settings)


def _object(reader: RepoReader, path: str, max_bytes: int) -> dict[str, Json] | None:
    try:
        return parse_object(reader.read(path, max_bytes), path)
    except HubauditError:
        return None
