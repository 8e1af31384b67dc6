"""The parameters as transformers builds them, which is what its quantizers see: fused experts in one tensor, a tied head absent."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hubaudit.facts.loading import converts, loaded_groups
from hubaudit.facts.skeleton import describe
from hubaudit.types import BuiltTensor

if TYPE_CHECKING:
    from hubaudit.facts.config_reader import ConfigReader
    from hubaudit.types import ModelFacts, ParameterCount


def built_tensors(config: ConfigReader, counted: ParameterCount | None) -> tuple[BuiltTensor, ...]:
    """Every parameter of the model that the config describes, where there are as many as the weights hold; else nothing.

    The names of files are not those of modules (a vision tower's prefix, one tensor an expert), so a file cannot tell which modules a
    quantizer converts. Where the counts differ, the config does not describe this checkpoint.
    """
    found = describe(config)
    if isinstance(found, str) or counted is None:
        return ()
    tensors = tuple(BuiltTensor(tensor.name, found.kinds[tensor.name], tensor.shape) for tensor in found.tensors)
    return tensors if sum(prod(tensor.shape) for tensor in tensors) == counted.loaded else ()


def is_built_so(facts: ModelFacts) -> bool:
    """Whether ``facts.built`` are the weights of these facts, which may be a share of the model that they describe, or more than it."""
    total = sum(group.parameters or 0 for group in loaded_groups(facts) if converts(group))
    return bool(facts.built) and sum(prod(tensor.shape) for tensor in facts.built) == total
