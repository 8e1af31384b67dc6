"""The tensors that a step trains, as an optimizer sees them: shape, how many alike, and what they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hubaudit.facts.loading import converts, loaded_groups

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts, TensorGroup

#: Towers beside a language model.
TOWERS = frozenset({"vision", "audio"})
#: Roles whose matrices low-rank and orthogonalizing optimizers leave alone: they take those of attention and MLP.
_HIDDEN_ROLES = frozenset({"attention", "mlp", "shared_expert", "state_space"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """``count`` trainable tensors of one shape; ``role`` is that of roles.toml, or ``adapter``. ``in_layers``: numbered, one for a layer or more.

    ``in_tower``: of the part of a language model that images or sound go through.
    """

    role: str
    shape: tuple[int, ...]
    count: int
    in_layers: bool = True
    in_tower: bool = False

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
        role=group.role,
        shape=group.logical_shape or group.shape,
        count=group.count,
        in_layers="*" in group.pattern,
        in_tower=group.role in TOWERS,
    )


def reached_by_text(tensors: tuple[Trained, ...]) -> tuple[Trained, ...]:
    """Those that get a gradient where tokens alone go through the model: all but towers, of a model that is more than towers.

    torch's optimizers pass over a parameter whose ``.grad`` is None, so that it has no states either (torch 2.13.0 optim/adamw.py, ``_init_group``).
    """
    return tuple(tensor for tensor in tensors if not tensor.in_tower) or tensors


def elements_of(tensors: tuple[Trained, ...]) -> int:
    """Elements of all of them."""
    return sum(tensor.count * tensor.elements for tensor in tensors)
