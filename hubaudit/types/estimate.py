"""What the work takes: components with formula and band, phases, shares of devices, and the same in other precisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hubaudit.types.values import Category, Exactness


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part of an estimate: ``bytes`` is ``formula`` over ``inputs``, both shown to whoever asks.

    ``low_bytes``/``high_bytes`` are the band (equal to ``bytes`` where ``exactness`` is ``exact``). ``sources`` says where the inputs were
    read and whose formula it is.
    """

    id: str
    category: Category
    bytes: int
    formula: str
    inputs: Mapping[str, int]
    exactness: Exactness
    sources: tuple[str, ...]
    low_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A part that could not be estimated, and why."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of the run and the bytes alive at its worst moment."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """One of several devices: the layers (first, and one past the last) and bytes that it holds. ``parameters`` are those loaded there."""

    device: int
    first_layer: int
    end_layer: int
    parameters: int
    weights_bytes: int
    cache_bytes: int
    total_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """What each of ``gpus`` processes holds at its worst moment where they share a training run in one way, nothing offloaded.

    ``name`` is ``ddp``, ``zero-1``, ``zero-2``, ``zero-3``, ``fsdp-1`` or ``fsdp-2``. ``weights_bytes`` has adapters in it, ``optimizer_bytes`` the
    master copy, ``activations_bytes`` the logits, and ``buffers_bytes`` all else: gathered layers, buckets, workspaces, the CUDA context.
    """

    name: str
    gpus: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buffers_bytes: int
    total_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory for one workload on one device: the components alive in the worst phase, and their sum with its band.

    On several ``devices`` the components are those of the fullest one, ``total_bytes`` is its sum, and ``high_bytes`` is no less than that of
    any device. ``stages`` are the ways in which several processes may share a training run, side by side.
    """

    fidelity: Literal["formula", "exact", "measured"]
    components: tuple[Component, ...]
    total_bytes: int
    low_bytes: int
    high_bytes: int
    phases: tuple[Phase, ...] = ()
    peak_phase: str | None = None
    assumptions: tuple[str, ...] = ()
    omitted: tuple[Omission, ...] = ()
    devices: tuple[DeviceShare, ...] = ()
    stages: tuple[StageShare, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The same workload with the weights held another way. ``plain_bytes`` is bits × parameters, ``weights_bytes`` what a loader makes of it."""

    dtype: str
    quant: str | None
    plain_bytes: int
    weights_bytes: int
    total_bytes: int
    note: str | None = None
