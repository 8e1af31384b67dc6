"""One training step, phase by phase: load, forward, loss, backward, optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.errors import UsageError
from hubaudit.estimate.component import component, given
from hubaudit.estimate.overhead import cuda_context, workspace
from hubaudit.estimate.training.moments import Moment, estimate_at_worst
from hubaudit.estimate.training.optimizers import step_bytes
from hubaudit.estimate.training.setting import TrainSetting, settle_training
from hubaudit.estimate.training.states import standing
from hubaudit.estimate.training.tensors import whole_model
from hubaudit.types import Estimate, Omission

if TYPE_CHECKING:
    from hubaudit.types import Component, ModelFacts, Workload


def estimate_training(facts: ModelFacts, workload: Workload) -> Estimate:
    """Memory of one process while it trains: the worst moment of a step, once the optimizer has its states.

    Raises:
        UsageError: the workload asks for something that does not exist.
    """
    setting = settle_training(facts, workload)
    if setting.adapters is not None or setting.sharing.gpus > 1:
        raise UsageError("adapters and several GPUs are not estimated yet", hint="leave out --lora and --gpus")
    parts = standing(facts, setting)
    beside = (workspace(), cuda_context())
    weights = tuple(part for part in parts.components if part.category == "Parameter")
    omitted = (*parts.omitted, Omission(id="activations", reason="activations of training are not estimated yet"))
    moments = [
        Moment(phase="load", components=(*weights, *beside)),
        Moment(phase="optimizer", components=(*parts.components, *_temporaries(facts, setting), *beside)),
    ]
    return estimate_at_worst(moments, assumptions=setting.assumptions, omitted=omitted)


def _temporaries(facts: ModelFacts, setting: TrainSetting) -> tuple[Component, ...]:
    size = step_bytes(whole_model(facts), setting.optimizer, setting.recipe.state_bits)
    if not size:
        return ()
    inputs = {"step_bytes": given(size, "shapes of the trainable tensors")}
    made = component(
        "optimizer_temporaries",
        "Workspace",
        "step_bytes",
        inputs,
        exactness="formula",
        source=setting.optimizer.source,
    )
    return (made,)
