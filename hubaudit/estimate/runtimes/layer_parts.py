"""The parts of a layer plan as engines see them: attention's entries and states, each under the engine's own name for the kind."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.kv_dtype import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import CacheTensor, LayerSpec, ModelFacts

#: Which tensors belong to which of an engine's parts; the names are those of layer_kinds.toml.
_STATES = "state"
_ENTRIES = {
    "full": ("keys", "values"),
    "sliding": ("keys", "values"),
    "chunked": ("keys", "values"),
    "window": ("keys", "values"),
    "latent": ("latent", "rotary_key"),
    "indexer": ("indexer_keys",),
    "cross": ("cross_keys", "cross_values"),
}
_CONVOLUTION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPart:
    """What one layer hands to one of the engine's caches: ``kind`` is the engine's word for it."""

    layer: int
    kind: str
    tensors: tuple[CacheTensor, ...]

    @property
    def elements(self) -> int:
        """Elements a token."""
        return sum(tensor.elements_per_token for tensor in self.tensors)

    @property
    def window_tokens(self) -> int | None:
        """The model's window: transformers keeps one token less of it, engines all of it."""
        windows = {tensor.window_tokens for tensor in self.tensors}
        kept = windows.pop() if len(windows) == 1 else None
        return None if kept is None else kept + 1


class NotModelledError(Exception):
    """The engine's table has no row for something that a layer keeps; the message says which."""


def layer_parts(facts: ModelFacts, section: str) -> list[LayerPart]:
    """All parts of all layers that keep something of their own, under the names of ``runtimes.toml``'s section.

    Raises:
        NotModelledError: a layer of a kind that the section does not name.
    """
    kinds = table(TABLE)[section]["kinds"]
    found = []
    for layer in facts.layer_plan or ():
        if layer.shares_cache_with is None:
            found += list(_parts(layer, kinds, section))
    return found


def _parts(layer: LayerSpec, kinds: dict[str, str], section: str) -> Iterator[LayerPart]:
    seen: set[str] = set()
    for word in layer.kind.split("+"):
        kind = kinds.get(word)
        if kind is None:
            raise NotModelledError(
                f"what {section.replace('_', '.')} keeps for layers of kind {layer.kind!a} is not known"
            )
        names = _ENTRIES.get(kind)
        tensors = tuple(
            tensor
            for tensor in layer.tensors
            if (tensor.fixed_elements > 0 if kind == _STATES else names is not None and tensor.name in names)
        )
        if tensors and kind not in seen:
            seen.add(kind)
            yield LayerPart(layer=layer.index, kind=kind, tensors=tensors)


def convolution_elements(facts: ModelFacts, tensor: CacheTensor, more_columns: int = 0) -> int:
    """Elements of a convolution's state without the column that the next token pushes out, which engines do not keep.

    The kernel's width is that of the convolution's weight, which has as many elements as transformers' state. All of them are counted where no
    such weight is known: an upper bound. ``more_columns`` are kept beside, for tokens that may be taken back.
    """
    width = kernel_width(facts, tensor)
    if width is None:
        return tensor.fixed_elements
    return tensor.fixed_elements // width * (width - 1 + more_columns)


def kernel_width(facts: ModelFacts, tensor: CacheTensor) -> int | None:
    """Columns of the convolution whose state ``tensor`` is; ``None`` where no weight tells."""
    for group in facts.tensor_groups:
        shape = group.logical_shape or group.shape
        if len(shape) == _CONVOLUTION and prod(shape) == tensor.fixed_elements and "conv" in group.pattern:
            return shape[-1]
    return None


def is_convolution(tensor: CacheTensor) -> bool:
    """Whether a fixed state is that of a convolution."""
    return tensor.name == "conv_state"
