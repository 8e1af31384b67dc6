"""Model cards: their bytes, their header, what they claim, and their comparison with the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fixture_models import facts_of, snapshot_of
from fuzz.registry import target

from hubaudit.card.document import diff, parse_card, with_section
from hubaudit.errors import CannotAuditError
from hubaudit.findings import find
from hubaudit.formats.card_claims import claims_of
from hubaudit.formats.card_text import BEGIN, END
from hubaudit.hub.beside import header_of
from hubaudit.hub.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_CARD = f"""---
license: apache-2.0
base_model: a/b
tags: [x, y]
extra_gated_prompt: "say yes"
---
# Model

It has **7.6 billion parameters** and a context length of 32k tokens. It requires 16 GB of VRAM.

| Property | Value |
|---|---|
| Parameters | 7.6B (non-embedding: 6.5B) |
| Precision | bfloat16 |
| Context Length | 32,768 |

- **Memory requirements**: 5 GiB in int4

{BEGIN} mode=infer -->
## Memory requirements
{END} -->
"""
_WORDS = (
    BEGIN.encode(), END.encode(), b"-->", b"```", b"~~~", b"|---|", b"---\n", b" billion parameters", b"7.6B", b"GB VRAM", b"context length of ", b"\xff\xfe",
    b"\xef\xbb\xbf", b"&a [*a]", b"!!python/object/apply:os.system", b"<!--", b"![](", b"][",
)  # fmt: skip


def _cards() -> Iterator[bytes]:
    yield _CARD.encode()
    yield _CARD.encode("utf-16")
    yield _CARD.replace("\n", "\r\n").encode()
    yield b"# Bare\n"


@target("card-document", allowed=(CannotAuditError,), seeds=_cards, dictionary=_WORDS)
def document(data: bytes) -> None:
    """A card comes back to the byte, and what is written into it is found again."""
    card = parse_card(data, "README.md")
    assert card.to_bytes() == data
    section = f"{BEGIN} mode=infer -->\n## Memory requirements\n{END} -->\n"
    written = with_section(card, section, "README.md")
    assert written.has_section
    diff(card, written, "README.md")


@target("card-claims", allowed=(), seeds=_cards, dictionary=_WORDS)
def claims(data: bytes) -> None:
    """What a card claims, and what the rules make of it."""
    text = data.decode("utf-8", errors="replace")
    for claim in claims_of(text, "org/name"):
        assert 0 <= claim.low <= claim.high
    snapshot = snapshot_of("gpt2")
    from dataclasses import replace

    header = header_of(text)
    find(replace(snapshot, card=text, terms=terms_of(header)), facts_of("gpt2"))
