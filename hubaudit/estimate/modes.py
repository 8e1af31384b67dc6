"""One estimate for every mode: inference and the cache alone, or training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate import infer, setting

if TYPE_CHECKING:
    from hubaudit.types import Estimate, ModelFacts, Workload


def estimate(facts: ModelFacts, workload: Workload) -> Estimate:
    """Memory for ``workload`` on one device.

    Raises:
        UsageError: the workload asks for something that does not exist.
    """
    if workload.mode == "train":
        from hubaudit.estimate.training.step import estimate_training  # only for those who ask

        return estimate_training(facts, workload)
    return infer.estimate(facts, workload)


def definite(facts: ModelFacts, workload: Workload) -> Workload:
    """The workload with every open choice filled in, for the report."""
    if workload.mode == "train":
        from hubaudit.estimate.training.setting import definite_training

        return definite_training(facts, workload)
    return setting.definite(facts, workload)
