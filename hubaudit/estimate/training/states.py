"""What lives from step to step: weights, gradients, master copies and optimizer states of the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.component import Parts, component, given
from hubaudit.estimate.training.optimizers import state_component
from hubaudit.estimate.training.tensors import elements_of, whole_model
from hubaudit.estimate.weights import weights_in
from hubaudit.types import Omission

if TYPE_CHECKING:
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.estimate.training.tensors import Trained
    from hubaudit.types import Component, ModelFacts


def weights_of(facts: ModelFacts, setting: TrainSetting) -> Component | None:
    """The weights that the model computes with; ``None`` where no tensors are known."""
    recipe = setting.recipe
    bits = given(recipe.weight_bits, f"table:recipes.toml#{recipe.name}")
    if not recipe.is_arithmetic_only:
        return weights_in(facts, recipe.weight_dtype, bits)
    inputs = {"parameters": given(elements_of(whole_model(facts)), "shapes of all tensors"), "bits": bits}
    return component(
        "weights", "Parameter", "parameters * bits // 8", inputs, exactness="formula", source=recipe.source
    )


def gradients_of(trained: tuple[Trained, ...], setting: TrainSetting) -> Component:
    """Gradients of all trainable parameters, and their copy in another width where the recipe makes one."""
    recipe = setting.recipe
    where = f"table:recipes.toml#{recipe.name}"
    inputs = {
        "trainable_parameters": given(elements_of(trained), "shapes of the trainable tensors"),
        "gradient_bits": given(recipe.gradient_bits, where),
        "widened_gradient_bits": given(recipe.widened_gradient_bits, where),
    }
    widths = "(gradient_bits + widened_gradient_bits)" if recipe.widened_gradient_bits else "gradient_bits"
    formula = f"trainable_parameters * {widths} // 8"
    return component("gradients", "Gradient", formula, inputs, exactness="formula", source=recipe.source)


def master_of(trained: tuple[Trained, ...], setting: TrainSetting) -> Component | None:
    """The float32 copy that the optimizer updates; ``None`` where it updates the weights themselves."""
    recipe = setting.recipe
    if not recipe.master_bits:
        return None
    inputs = {
        "trainable_parameters": given(elements_of(trained), "shapes of the trainable tensors"),
        "master_bits": given(recipe.master_bits, f"table:recipes.toml#{recipe.name}"),
    }
    formula = "trainable_parameters * master_bits // 8"
    return component("master_weights", "Parameter", formula, inputs, exactness="formula", source=recipe.source)


def states_of(trained: tuple[Trained, ...], setting: TrainSetting) -> Component:
    """The optimizer's states once the first update has been made."""
    own_bits = given(setting.recipe.state_bits, f"table:recipes.toml#{setting.recipe.name}")
    return state_component(trained, setting.optimizer, own_bits)


def standing(facts: ModelFacts, setting: TrainSetting) -> Parts:
    """Weights, master copies, gradients and states together."""
    weights = weights_of(facts, setting)
    if weights is None:
        reason = facts.parameters_reason or "no tensors are known"
        return Parts(omitted=(Omission(id="weights", reason=reason),))
    trained = whole_model(facts)
    made = (weights, master_of(trained, setting), gradients_of(trained, setting), states_of(trained, setting))
    return Parts(components=tuple(part for part in made if part is not None))
