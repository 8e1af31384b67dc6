"""Every way in which several processes may share one training run, side by side: DDP, ZeRO 1-3, FSDP 1 and 2."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.estimate.moments import worst
from hubaudit.types import StageShare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hubaudit.estimate.moments import Moment
    from hubaudit.estimate.training.sharding import Shares
    from hubaudit.types import Component

_WAYS = (
    ("ddp", 0, None),
    ("zero-1", 1, None),
    ("zero-2", 2, None),
    ("zero-3", 3, None),
    ("fsdp-1", 3, 1),
    ("fsdp-2", 3, 2),
)


def stage_shares(shares: Shares, moments_under: Callable[[Shares], list[Moment]]) -> Iterator[StageShare]:
    """A row for every way; nothing for a process that is alone.

    Args:
        shares: those that were asked for; offloading is left out.
        moments_under: all moments of a step as one process has them under other shares.
    """
    if shares.replicas == 1:
        return
    for name, stage, fsdp in _WAYS:
        moments = moments_under(replace(shares, stage=stage, fsdp=fsdp, offload=frozenset()))
        yield _row(name, shares.replicas, worst(moments))


def _row(name: str, gpus: int, moment: Moment) -> StageShare:
    sums = dict.fromkeys(("weights", "gradients", "optimizer", "activations", "buffers"), 0)
    for part in moment.components:
        sums[_column(part)] += part.bytes
    return StageShare(
        name=name,
        gpus=gpus,
        weights_bytes=sums["weights"],
        gradients_bytes=sums["gradients"],
        optimizer_bytes=sums["optimizer"],
        activations_bytes=sums["activations"],
        buffers_bytes=sums["buffers"],
        total_bytes=moment.total_bytes,
        high_bytes=sum(part.high_bytes for part in moment.components),
    )


def _column(part: Component) -> str:
    if part.category == "OptimizerState" or part.id == "master_weights":
        return "optimizer"
    return {"Parameter": "weights", "Gradient": "gradients", "Activation": "activations"}.get(part.category, "buffers")
