"""``tokenizer.json`` and ``tokenizer_config.json``: how many token ids there are, and how many tokens one text may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.types import Sourced, TokenizerFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Json

MAX_TOKENIZER_BYTES = 64_000_000
_TOKENIZER, _SETTINGS = "tokenizer.json", "tokenizer_config.json"
#: transformers writes int(1e30) for "no limit"; whatever is larger than this means the same.
_NO_LIMIT = 10**9


def tokenizer_facts(vocabulary: dict[str, Json] | None, settings: dict[str, Json] | None) -> TokenizerFacts:
    """Read the two files, either of which may be absent. Ids that make no sense are left out.

    Args:
        vocabulary: ``tokenizer.json`` of the tokenizers library: ``model.vocab`` (an object, or a list for Unigram) and ``added_tokens``.
        settings: ``tokenizer_config.json`` of transformers: ``added_tokens_decoder`` and ``model_max_length``.
    """
    ids = {
        f"{_TOKENIZER}#model.vocab": _vocabulary_ids(vocabulary),
        f"{_TOKENIZER}#added_tokens": _added_ids(vocabulary),
        f"{_SETTINGS}#added_tokens_decoder": _setting_ids(settings),
    }
    largest = {where: last for where, found in ids.items() if (last := max(found, default=-1)) >= 0}
    where = max(largest, key=lambda one: largest[one], default=None)
    longest = None if settings is None else settings.get("model_max_length")
    limit = longest if type(longest) is int and 0 < longest < _NO_LIMIT else None
    return TokenizerFacts(
        tokens=Sourced(value=None, where="no token ids in the tokenizer's files")
        if where is None
        else Sourced(value=largest[where] + 1, where=where),
        max_tokens=Sourced(
            value=limit, where=f"{_SETTINGS}#model_max_length" if limit else f"{_SETTINGS} names no limit"
        ),
    )


def _vocabulary_ids(vocabulary: dict[str, Json] | None) -> Iterator[int]:
    model = None if vocabulary is None else vocabulary.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        yield from filter(_is_id, vocab.values())
    elif isinstance(vocab, list) and vocab:
        yield len(vocab) - 1


def _added_ids(vocabulary: dict[str, Json] | None) -> Iterator[int]:
    added = None if vocabulary is None else vocabulary.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        found = token.get("id") if isinstance(token, dict) else None
        if type(found) is int and _is_id(found):
            yield found


def _setting_ids(settings: dict[str, Json] | None) -> Iterator[int]:
    added = None if settings is None else settings.get("added_tokens_decoder")
    for key in added if isinstance(added, dict) else ():
        if key.isascii() and key.isdecimal() and len(key) <= 10:
            yield int(key)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**40
