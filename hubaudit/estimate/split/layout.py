"""How many devices for matrices, layers and experts, which of them a device is, and which layers are its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubaudit.data import table
from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.types import Workload

TABLE = "split.toml"
#: Each is estimated by itself.
_MOST_DEVICES = 1_024


def rules_of(runtime: str) -> Mapping[str, Any]:
    """The engine's own section of the table.

    Raises:
        KeyError: the table has none for it.
    """
    found: Mapping[str, Any] = table(TABLE)[runtime.replace(".", "_")]
    return found


class SplitError(UsageError):
    """The engine would refuse to split the model so, or its rules for it are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Devices along each axis. ``expert`` counts those that share the experts; beyond ``tensor`` they have a batch of their own each."""

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        """All devices together."""
        return self.pipeline * max(self.tensor, self.expert)

    @property
    def replicas(self) -> int:
        """Groups of devices that each serve sequences of their own and share nothing but the experts."""
        return max(1, self.expert // self.tensor)

    @property
    def label(self) -> str:
        """The split in the words of the command line: ``"tp 4 × pp 2"``."""
        words = (("tp", self.tensor), ("pp", self.pipeline), ("ep", self.expert))
        return " × ".join(f"{word} {count}" for word, count in words if count > 1) or "one device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One device of a split: its stage, its rank among those that share matrices, and among those that share experts."""

    device: int
    stage: int
    tensor_rank: int
    expert_rank: int


def split_of(workload: Workload) -> Split:
    """The split that a workload asks for.

    Raises:
        SplitError: the numbers contradict each other.
    """
    split = Split(tensor=workload.tp, pipeline=workload.pp, expert=workload.ep)
    if min(split.tensor, split.pipeline, split.expert) < 1:
        raise SplitError("devices are counted from 1")
    if split.devices > _MOST_DEVICES:
        raise SplitError(
            f"{split.label}: more than {_MOST_DEVICES:,} devices", hint="nobody was seen to share one model over more"
        )
    if split.expert > 1 and split.expert % split.tensor:
        raise SplitError(
            f"experts on {split.expert} devices and matrices on {split.tensor}: the first must be a multiple of the second",
            hint="the devices that share experts are groups of those that share matrices",
        )
    return split


def places(split: Split) -> list[Place]:
    """Every device, stage by stage."""
    width = max(split.tensor, split.expert)
    return [
        Place(device=stage * width + rank, stage=stage, tensor_rank=rank % split.tensor, expert_rank=rank)
        for stage in range(split.pipeline)
        for rank in range(width)
    ]


def stage_layers(layers: int, split: Split, stage: int, runtime: str) -> tuple[int, int]:
    """The first layer of a stage, and one past its last, as the engine cuts them.

    Raises:
        SplitError: fewer layers than stages.
    """
    if layers < split.pipeline:
        raise SplitError(f"{layers} layers cannot be cut into {split.pipeline} stages")
    rule = rules_of(runtime)["stages"]
    if rule == "by_share":  # the head counts as one more layer
        bounds = [-(-number * (layers + 1) // split.pipeline) for number in (stage, stage + 1)]
        return min(bounds[0], layers), min(bounds[1], layers)
    each, rest = divmod(layers, split.pipeline)
    sizes = [each] * split.pipeline
    if rule == "rest_last":
        sizes[-1] += rest
    else:
        for back in range(2, rest + 2):
            sizes[-back] += 1
    first = sum(sizes[:stage])
    return first, first + sizes[stage]


def experts_of(experts: int, split: Split, rank: int, runtime: str) -> int:
    """How many of the experts one device holds.

    Raises:
        SplitError: the engine wants an even split.
    """
    each, rest = divmod(experts, split.expert)
    if rest and rules_of(runtime)["experts"] == "even":
        raise SplitError(f"{runtime} does not split {experts} experts over {split.expert} devices: not divisible")
    return each + (rank < rest)
