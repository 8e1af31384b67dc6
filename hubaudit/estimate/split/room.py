"""Which splits of a model fit into devices of one size: asked of hundreds, most of which do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate import infer
from hubaudit.estimate.setting import settle
from hubaudit.estimate.split.devices import communication, on_one_device
from hubaudit.estimate.split.layout import places, split_of
from hubaudit.estimate.split.share import check, facts_on, layers_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from hubaudit.estimate.split.layout import Place, Split
    from hubaudit.types import ModelFacts, Workload

    #: What is asked of a device, how matrices and experts are cut, and whether there are stages.
    _Cut: TypeAlias = tuple[Workload, int, int, bool]
    #: All else that a share depends on: which piece of them is its own, its layers, and whether it is the first stage or the last.
    _Share: TypeAlias = tuple[int, int, tuple[int, int], bool, bool]


class Room:
    """Devices of ``usable_bytes`` each, for shares of one model.

    What a share needs is kept, for one split's shares are often another's too: of 60 layers, 52 stages and 53 begin alike.
    """

    def __init__(self, facts: ModelFacts, usable_bytes: int) -> None:
        self._facts = facts
        self._usable_bytes = usable_bytes
        self._needed: dict[_Cut, dict[_Share, int]] = {}

    def holds(self, workload: Workload) -> bool:
        """Whether no device of the workload's split needs more than there is, by the upper end of its band, as the estimate would tell.

        It stops at the first device that does.

        Raises:
            UsageError: as :func:`hubaudit.estimate.modes.estimate`.
        """
        split = split_of(workload)
        runtime = settle(self._facts, workload).runtime
        check(self._facts, split, runtime)
        left_bytes = self._usable_bytes - communication(self._facts, split, runtime).high_bytes
        return all(needed <= left_bytes for needed in self._needs(split, runtime, on_one_device(workload, split)))

    def _needs(self, split: Split, runtime: str, asked: Workload) -> Iterator[int]:
        """What every device needs: first what is known already, then a device of each stage, then the others, many of which are equal."""
        needed = self._needed.setdefault((asked, split.tensor, split.expert, split.pipeline > 1), {})
        shares = self._shares(split, runtime)
        yield from [needed[share] for share in shares if share in needed]
        equal: dict[tuple[object, ...], int] = {}
        for share, place in sorted(shares.items(), key=lambda item: item[1].expert_rank):
            if share not in needed:
                facts = facts_on(self._facts, split, place, runtime)
                held = (facts.tensor_groups, facts.layer_plan)
                if held not in equal:
                    equal[held] = self._needed_for(facts, asked)
                needed[share] = equal[held]
                yield equal[held]

    def _shares(self, split: Split, runtime: str) -> dict[_Share, Place]:
        """A device of each share."""
        layers: dict[int, tuple[int, int]] = {}
        shares = {}
        for place in places(split):
            if place.stage not in layers:
                layers[place.stage] = layers_on(self._facts, split, place, runtime)
            ends = (place.stage == 0, place.stage == split.pipeline - 1)
            shares[(place.tensor_rank, place.expert_rank, layers[place.stage], *ends)] = place
        return shares

    def _needed_for(self, facts: ModelFacts, asked: Workload) -> int:
        """The upper end for one share; that of its weights where they alone are too much for any split's devices."""
        weights_bytes = infer.weights_high_bytes(facts, asked)
        return weights_bytes if weights_bytes > self._usable_bytes else infer.estimate(facts, asked).high_bytes
