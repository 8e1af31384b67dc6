"""transformers: its caches. What else lives beside the weights is told by generation.py, phase by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.cache import cache_components
from hubaudit.estimate.cache_offloaded import offloaded_components
from hubaudit.estimate.cache_quantized import quantized_components
from hubaudit.estimate.cache_static import static_components
from hubaudit.estimate.component import Parts
from hubaudit.estimate.kv_dtype import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.estimate.setting import Setting
    from hubaudit.types import Component, ModelFacts


def _dynamic(facts: ModelFacts, setting: Setting) -> Parts:
    return Parts(components=cache_components(facts, setting))


_CACHES: dict[str, Callable[[ModelFacts, Setting], Parts]] = {
    "dynamic": _dynamic,
    "static": static_components,
    "offloaded": offloaded_components,
    "offloaded_static": offloaded_components,
    "quantized": quantized_components,
}


def cache(facts: ModelFacts, setting: Setting) -> Parts:
    """What the chosen cache holds.

    Raises:
        UsageError: transformers refuses that cache for this model.
    """
    if setting.cache != "dynamic" and facts.model_type in table(TABLE)["transformers"]["own_cache"]:
        ignored = f"{facts.model_type} makes its own cache: {setting.cache} is ignored"
        return _dynamic(facts, setting) + Parts(assumptions=(ignored,))
    said: tuple[str, ...] = ()
    if setting.kv.cache is None and setting.kv_bits.value != setting.dtype_bits.value:
        said = (f"transformers caches in the compute dtype; {setting.kv.name} is what another dtype would take",)
    return _CACHES[setting.cache](facts, setting) + Parts(assumptions=said)


def beside(facts: ModelFacts, setting: Setting) -> Parts:
    """Nothing that stays from the first token to the last."""
    return Parts()


def loaded(facts: ModelFacts, weights: Component) -> Component:
    """The weights as they are: what the weights' formulas count is what transformers holds."""
    return weights
