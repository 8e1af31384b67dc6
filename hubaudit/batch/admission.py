"""One rate budget for workers that share no memory: items start only as the quota allows, by what earlier ones used of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubaudit.batch.plan import Outcome
    from hubaudit.hub.budget import SharedBudget

#: What a model is taken to cost until some are done: info, one set of headers and the look at ``main``; a config and a range with redirects.
_FIRST_GUESS = {"api": 3.0, "resolvers": 4.0}
_WEIGHT = 0.05


class SharedOut:
    """Lets an item start where it, and all that are under way, are within the share of every quota.

    A worker counts its requests and keeps the smallest number that an answer told it; both come back with the row. A worker that finds the
    quota used up says so at once instead of waiting, and its item starts again in the next window.
    """

    def __init__(self, budget: SharedBudget) -> None:
        self._budget = budget
        self._cost = dict(_FIRST_GUESS)

    def seconds_to_wait(self, under_way: int) -> float:
        """0 where one more item may start."""
        needs = {bucket: cost * (under_way + 1) for bucket, cost in self._cost.items()}
        return self._budget.seconds_until(needs)

    def learn(self, outcome: Outcome) -> None:
        """What an item used, and what it was told."""
        for quota in outcome.told:
            self._budget.note(quota)
        if outcome.sent:
            for bucket in self._cost:
                used = outcome.sent.get(bucket, 0)
                self._cost[bucket] += _WEIGHT * (used - self._cost[bucket])
