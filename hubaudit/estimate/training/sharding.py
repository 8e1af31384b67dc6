"""How processes share what a step holds: DDP, ZeRO and FSDP, their buffers, and what is offloaded to the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.estimate.component import component, given
from hubaudit.estimate.training.tensors import elements_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hubaudit.estimate.moments import Moment
    from hubaudit.estimate.training.fsdp import Cut
    from hubaudit.estimate.training.setting import Sharing, TrainSetting
    from hubaudit.estimate.training.states import Standing
    from hubaudit.types import Component

_STATES, _GRADIENTS, _WEIGHTS = 1, 2, 3
_BUCKET_ELEMENTS = 500_000_000
_ZERO = "ZeRO, arXiv:1910.02054, section 5: states, then gradients, then parameters are divided by the processes, rounded up"
_DDP = "torch DistributedDataParallel: buckets hold a copy of all gradients (gradient_as_bucket_view=False)"
_BUCKET = "DeepSpeed reduce_bucket_size, 5e8 elements by default; never more than there are gradients"
_GATHER = "the layer that runs and the one that is prefetched, gathered whole, beside embeddings and head (DeepSpeed ZeRO-3 prefetch)"
_OFFLOADED = {"optimizer": (_STATES,), "all": (_STATES, _WEIGHTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What is divided by how many processes: ``stage`` as ZeRO counts, FSDP being its third."""

    replicas: int
    stage: int
    offload: frozenset[int]
    fsdp: int | None = None

    def divides(self, part: Component) -> bool:
        """Whether each process has its part of it only."""
        return self.replicas > 1 and self.stage >= _stage_of(part)

    def is_away(self, part: Component) -> bool:
        """Whether it lies in host memory or on a disk."""
        return _stage_of(part) in self.offload


def shares_of(sharing: Sharing) -> Shares:
    """The shares that were asked for.

    Raises:
        UsageError: parameters are offloaded only where they are divided.
    """
    stage = _WEIGHTS if sharing.fsdp is not None else sharing.zero or 0
    away = frozenset(_OFFLOADED[sharing.offload.removesuffix("-nvme")] if sharing.offload else ())
    if _WEIGHTS in away and stage < _WEIGHTS:
        raise UsageError("parameters are offloaded by ZeRO-3 and FSDP only", hint="--zero 3")
    return Shares(replicas=sharing.replicas, stage=stage, offload=away, fsdp=sharing.fsdp)


def shared(
    moments: Iterable[Moment], held: Standing, setting: TrainSetting, shares: Shares, by_fsdp: Cut | None = None
) -> Iterator[Moment]:
    """Every moment as one process has it; ``by_fsdp`` is the model as FSDP cuts it."""
    for moment in moments:
        if by_fsdp is not None:
            own = [by_fsdp.share(part, setting, held) for part in moment.components if not shares.is_away(part)]
            yield replace(moment, components=(*own, *by_fsdp.buffers(moment.phase, setting, held)))
            continue
        parts = [_share(part, shares) for part in moment.components if not shares.is_away(part)]
        yield replace(moment, components=(*parts, *_buffers(moment.phase, held, setting, shares)))


def _stage_of(part: Component) -> int:
    """From which stage on it is divided; beyond all for what every process has of its own."""
    if part.category == "OptimizerState" or part.id == "master_weights":
        return _STATES
    if part.category == "Gradient":
        return _GRADIENTS
    return _WEIGHTS if part.id in ("weights", "adapters") else _WEIGHTS + 1


def _share(part: Component, shares: Shares) -> Component:
    if not shares.divides(part):
        return part
    *wheres, source = part.sources
    return replace(
        part,
        bytes=-(-part.bytes // shares.replicas),
        low_bytes=-(-part.low_bytes // shares.replicas),
        high_bytes=-(-part.high_bytes // shares.replicas),
        formula=f"ceil_div({part.formula}, gpus)",
        inputs={**part.inputs, "gpus": shares.replicas},
        sources=(*wheres, "gpus: workload", f"{source}; {_ZERO}"),
        exactness="formula",
    )


def _buffers(phase: str, held: Standing, setting: TrainSetting, shares: Shares) -> Iterator[Component]:
    """Buckets that gradients are sent in, and parameters that are gathered for the layers at work."""
    needs_gathering = shares.stage >= _WEIGHTS and (shares.replicas > 1 or _WEIGHTS in shares.offload)
    if needs_gathering and phase in ("forward", "loss", "backward"):
        yield _gathered(held, shares)
    if shares.replicas == 1 or phase not in ("backward", "optimizer"):
        return
    elements = elements_of(held.trained)
    most = elements if not shares.stage else min(elements, _BUCKET_ELEMENTS)
    inputs = {
        "bucket_elements": given(most, "trainable parameters" if most == elements else "DeepSpeed's default"),
        "gradient_bits": given(held.gradient_bits, f"table:recipes.toml#{setting.recipe.name}"),
    }
    source = _BUCKET if shares.stage else _DDP
    formula = "bucket_elements * gradient_bits // 8"
    yield component("buckets", "Workspace", formula, inputs, exactness="formula", source=source)


def _gathered(held: Standing, shares: Shares) -> Component:
    whole = held.weights.bytes
    share = 0 if _WEIGHTS in shares.offload else -(-whole // shares.replicas)
    inputs = {
        "unit_bytes": given(min(held.largest_unit_bytes, whole), "shapes of the tensors"),
        "weights_left_bytes": given(whole - share, "weights without this process's share"),
    }
    formula = "min(unit_bytes, weights_left_bytes)"
    return component("gathered", "Workspace", formula, inputs, exactness="formula", source=_GATHER)
