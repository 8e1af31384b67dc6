"""The tensors that a step trains, as an optimizer sees them: shape, how many alike, and what they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hubaudit.facts.loading import converts, loaded_groups

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts, TensorGroup

#: Roles whose matrices low-rank and orthogonalizing optimizers leave alone: they take those of attention and MLP.
_HIDDEN_ROLES = frozenset({"attention", "mlp", "shared_expert", "state_space"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """``count`` trainable tensors of one shape; ``role`` is that of roles.toml, or ``adapter``. ``in_layers``: numbered, one for a layer or more."""

    role: str
    shape: tuple[int, ...]
    count: int
    in_layers: bool = True

    @property
    def elements(self) -> int:
        """Elements of one of them."""
        return prod(self.shape)

    @property
    def is_matrix(self) -> bool:
        """Two dimensions or more."""
        return len(self.shape) > 1

    @property
    def is_hidden_matrix(self) -> bool:
        """A matrix of attention or MLP."""
        return len(self.shape) == 2 and self.role in _HIDDEN_ROLES


def whole_model(facts: ModelFacts) -> tuple[Trained, ...]:
    """Every floating-point tensor of the model, as full fine-tuning trains them."""
    return tuple(trained_as(group) for group in loaded_groups(facts) if converts(group) and group.parameters)


def trained_as(group: TensorGroup) -> Trained:
    """A group of stored tensors as trainable ones."""
    return Trained(
        role=group.role, shape=group.logical_shape or group.shape, count=group.count, in_layers="*" in group.pattern
    )


def elements_of(tensors: tuple[Trained, ...]) -> int:
    """Elements of all of them."""
    return sum(tensor.count * tensor.elements for tensor in tensors)
