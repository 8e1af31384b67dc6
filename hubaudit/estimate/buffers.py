"""Tables and masks that the model's class makes while it is loaded: they lie on the device beside the weights, and no file holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.component import Parts, component, given
from hubaudit.types import Omission

if TYPE_CHECKING:
    from hubaudit.estimate.component import Input
    from hubaudit.types import ModelFacts


def made_buffers(facts: ModelFacts, bits: Input) -> Parts:
    """One component of all of them in a model that is loaded in ``bits``; what the config leaves unknown is omitted, with the reason."""
    unknown = [one.where for buffer in facts.buffers for one in buffer.inputs.values() if one.value is None]
    omitted = (Omission(id="buffers", reason="; ".join(dict.fromkeys(unknown))),) if unknown else ()
    known = [buffer for buffer in facts.buffers if all(one.value is not None for one in buffer.inputs.values())]
    if not known:
        return Parts(omitted=omitted)
    inputs = {
        name: given(one.value, one.where)
        for buffer in known
        for name, one in buffer.inputs.items()
        if one.value is not None
    }
    made = component(
        "buffers",
        "Buffer",
        " + ".join(buffer.formula for buffer in known),
        inputs | {"dtype_bits": bits},
        exactness="exact" if not unknown else "formula",
        source="; ".join(dict.fromkeys(buffer.source for buffer in known)) + " (transformers 5.23.0)",
    )
    return Parts(components=(made,), omitted=omitted)
