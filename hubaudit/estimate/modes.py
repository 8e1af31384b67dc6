"""One estimate for every mode, on one device or several: inference and the cache alone, or training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.estimate import infer, setting
from hubaudit.estimate.asked import refuse_impossible

if TYPE_CHECKING:
    from hubaudit.types import Estimate, ModelFacts, Variant, Workload


def estimate(facts: ModelFacts, workload: Workload) -> Estimate:
    """Memory for ``workload`` on one device, the fullest where there are several.

    Raises:
        UsageError: the workload asks for something that does not exist.
    """
    refuse_impossible(workload)
    if workload.mode == "train":
        from hubaudit.estimate.training.step import estimate_training  # only for those who ask

        if workload.ep != 1:
            raise UsageError("--ep is for inference", hint="--mode infer")
        return estimate_training(facts, workload)
    if is_split(workload):
        from hubaudit.estimate.split import devices

        return devices.estimate(facts, workload)
    return infer.estimate(facts, workload)


def variants(facts: ModelFacts, workload: Workload) -> tuple[Variant, ...]:
    """The same workload with the weights held otherwise; nothing for training."""
    if workload.mode != "train" and is_split(workload):
        from hubaudit.estimate.split import devices

        return devices.variants(facts, workload)
    return infer.variants(facts, workload)


def is_split(workload: Workload) -> bool:
    """Whether several devices share the model."""
    return (workload.tp, workload.pp, workload.ep) != (1, 1, 1)


def definite(facts: ModelFacts, workload: Workload) -> Workload:
    """The workload with every open choice filled in, for the report."""
    if workload.mode == "train":
        from hubaudit.estimate.training.setting import definite_training

        return definite_training(facts, workload)
    return setting.definite(facts, workload)
