"""What the rules on parameter counts share: the figures that people mean by "the parameters" of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts

#: How far a claim may be off.
TOLERANCE = 0.05
_EMBEDDINGS = ("embedding", "head")


def known_counts(facts: ModelFacts) -> tuple[int, ...]:
    """All parameters, those loaded, and both without the embeddings (which some count, some do not, and some count once)."""
    count = facts.parameters
    if count is None:
        return ()
    embeddings = sum(count.by_role.get(role, 0) for role in _EMBEDDINGS)
    numbers = (count.total, count.loaded, count.total - embeddings, count.loaded - embeddings)
    return tuple(dict.fromkeys(number for number in numbers if number > 0))


def is_near(count: int, claimed: float) -> bool:
    """Whether a claim is within 5 % of a count."""
    return abs(claimed - count) <= TOLERANCE * count
