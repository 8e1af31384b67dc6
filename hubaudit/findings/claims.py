"""What the rules on model cards share: the claims of the card that was read with the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.formats.card_claims import Claim, Kind
    from hubaudit.types import RepoSnapshot

CARD = "README.md"


def claimed(snapshot: RepoSnapshot, *kinds: Kind) -> Iterator[Claim]:
    """The card's claims of these kinds. A repository of the Hub is audited without its card's text, which would be one question more."""
    if snapshot.card is not None:
        from hubaudit.formats.card_claims import (
            claims_of,
        )  # its patterns take as long to compile as all other rules to run

        yield from (claim for claim in claims_of(snapshot.card, snapshot.repo_id) if claim.kind in kinds)
