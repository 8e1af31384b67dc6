"""What lives from step to step: weights, adapters, gradients, master copies and optimizer states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.estimate.buffers import made_buffers
from hubaudit.estimate.component import component, given
from hubaudit.estimate.quantized_weights import split, weights_quantized
from hubaudit.estimate.training.lora import adapter_component, saved_whole, trained_tensors
from hubaudit.estimate.training.losses import predicts_tokens
from hubaudit.estimate.training.optimizers import state_component, step_bytes
from hubaudit.estimate.training.tensors import elements_of, reached_by_text, whole_model
from hubaudit.estimate.weights import weights_in
from hubaudit.facts.loading import converts, loaded_groups

if TYPE_CHECKING:
    from hubaudit.estimate.component import Input, Parts
    from hubaudit.estimate.training.recipes import Recipe
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.estimate.training.tensors import Trained
    from hubaudit.types import Component, ModelFacts

_KBIT = "peft 0.21.2 utils/other.py, prepare_model_for_kbit_training: what is not quantized is made float32"
_ADAPTER_BITS = 32
_BASE_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Components that live on, and the tensors that are trained.

    ``trained`` are those that get gradients, and with them states. ``gradients`` is all of them at once, as after a backward pass; ``own_bits`` the width of what the optimizer updates; ``largest_unit_bytes``
    what is whole at once where parameters are divided: two layers, embeddings and head.
    """

    weights: Component
    buffers: Parts
    adapters: Component | None
    master: Component | None
    gradients: Component
    states: Component
    trained: tuple[Trained, ...]
    gradient_bits: int
    own_bits: int
    largest_unit_bytes: int

    @property
    def parameters(self) -> tuple[Component, ...]:
        """Everything that holds weights."""
        return tuple(part for part in (self.weights, self.adapters, self.master) if part is not None)

    @property
    def components(self) -> tuple[Component, ...]:
        """All of them."""
        return (*self.loaded, self.gradients, self.states)

    @property
    def loaded(self) -> tuple[Component, ...]:
        """What is there before the first step: weights, and the tables that the class makes."""
        return (*self.parameters, *self.buffers.components)


def standing(facts: ModelFacts, setting: TrainSetting) -> Standing | None:
    """All of it; ``None`` where no tensors are known.

    Raises:
        UsageError: no module has the name of a target.
    """
    weights = weights_of(facts, setting)
    if weights is None:
        return None
    recipe = setting.recipe
    if setting.adapters is None:
        trained = whole_model(facts)
        recipe_bits = (recipe.gradient_bits, recipe.state_bits)
    else:
        trained = trained_tensors(facts, setting.adapters) + saved_whole(facts, setting.adapters)
        recipe_bits = (_ADAPTER_BITS, _ADAPTER_BITS)
        setting = replace(setting, recipe=_adapter_recipe(setting))
    master = master_of(trained, setting)
    if not takes_all(facts, setting):
        trained = reached_by_text(trained)
    return Standing(
        weights=weights,
        buffers=made_buffers(facts, _buffer_bits(setting)),
        adapters=adapter_component(facts, setting),
        master=master,
        gradients=gradients_of(trained, setting),
        states=states_of(trained, setting),
        trained=trained,
        gradient_bits=recipe_bits[0],
        own_bits=recipe_bits[1],
        largest_unit_bytes=_unit_bytes(facts, weights),
    )


def _buffer_bits(setting: TrainSetting) -> Input:
    """The width that the model is loaded in, in which it makes its tables; only parameters of a quantized base are made float32 later."""
    if setting.is_prepared:
        return given(_BASE_BITS, "a quantized base is loaded in 16 bit")
    return given(setting.recipe.weight_bits, f"table:recipes.toml#{setting.recipe.name}")


def takes_all(facts: ModelFacts, setting: TrainSetting) -> bool:
    """Whether every trainable parameter has a gradient and states, reached by the loss of tokens or not.

    What keeps a master copy or divides states lays them out before the first step.
    """
    return bool(setting.recipe.master_bits or setting.sharing.zero) or not predicts_tokens(facts)


def _unit_bytes(facts: ModelFacts, weights: Component) -> int:
    groups = [group for group in loaded_groups(facts) if group.parameters]
    everything = sum(group.parameters or 0 for group in groups)
    outside = sum(group.parameters or 0 for group in groups if group.role in ("embedding", "head"))
    unit = outside + 2 * -(-(everything - outside) // max(1, facts.layers.value or 1))
    return weights.bytes * unit // max(1, everything)


def _adapter_recipe(setting: TrainSetting) -> Recipe:
    """Adapters are float32 whatever the base is in: weights, gradients and states, and no master copy."""
    return replace(
        setting.recipe,
        gradient_bits=_ADAPTER_BITS,
        state_bits=_ADAPTER_BITS,
        master_bits=0,
        widened_gradient_bits=0,
        source="peft 0.21.2: 16-bit adapters are made float32 (autocast_adapter_dtype)",
    )


def weights_of(facts: ModelFacts, setting: TrainSetting) -> Component | None:
    """The weights that the model computes with; ``None`` where no tensors are known."""
    recipe = setting.recipe
    bits = given(recipe.weight_bits, f"table:recipes.toml#{recipe.name}")
    if setting.conversion is not None:
        return weights_quantized(
            split(facts, setting.conversion, "F32"), setting.conversion, given(_ADAPTER_BITS, _KBIT)
        )
    if setting.is_packed:
        return _packed(facts)
    if not recipe.is_arithmetic_only:
        return weights_in(facts, recipe.weight_dtype, bits)
    inputs = {"parameters": given(elements_of(whole_model(facts)), "shapes of all tensors"), "bits": bits}
    return component(
        "weights", "Parameter", "parameters * bits // 8", inputs, exactness="formula", source=recipe.source
    )


def _packed(facts: ModelFacts) -> Component | None:
    """A base that is quantized in its files: packed weights and scales as stored, the rest in float32."""
    groups = loaded_groups(facts)
    if facts.stored_bytes is None or not groups:
        return None
    plain = [
        group
        for group in groups
        if group.bits is None and group.kind != "scale" and converts(group) and group.parameters
    ]
    inputs = {
        "stored_bytes": given(
            sum(group.stored_bytes for group in groups if group not in plain), "header:packed weights"
        ),
        "kept_parameters": given(sum(group.parameters or 0 for group in plain), "header:what is not packed"),
    }
    formula = "stored_bytes + 4 * kept_parameters"
    return component("weights", "Parameter", formula, inputs, exactness="formula", source=_KBIT)


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


def update_temporaries(held: Standing, setting: TrainSetting) -> Component | None:
    """What an update needs beside the states; ``None`` where it is nothing."""
    size = step_bytes(held.trained, setting.optimizer, held.own_bits)
    if not size:
        return None
    inputs = {"step_bytes": given(size, "shapes of the trainable tensors")}
    source = setting.optimizer.source
    return component("optimizer_temporaries", "Workspace", "step_bytes", inputs, exactness="formula", source=source)
