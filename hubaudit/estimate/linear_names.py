"""Which tensors of files are the weights of linear layers, where no table describes the model's modules: by their names, and by class what names hide."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.data import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.types import TensorGroup

#: Roles of matrices that are no ``nn.Linear``, or that quantizers leave alone.
_KEPT_ROLES = ("embedding", "head", "router", "expert")
#: Modules that look rows up, in towers beside the language model too.
_TABLE = re.compile(
    r"(^|\.)(\w+_)?(emb|embeds?|embeddings?|embedder|embed_tokens|embed_positions|pos_embed\w*|(position|input)_embeds_layers?)(\.\*)?\.weight$"
)
_LINEAR = ("linear", "conv1d")


def kind_by_name(group: TensorGroup) -> str:
    """The kind of module that a matrix's name tells of: ``"other"`` for what looks like a linear layer's weight, and quantizers leave alone."""
    if group.role in _KEPT_ROLES:
        return "other"
    if group.kind == "linear" and (not group.pattern.endswith(".weight") or _TABLE.search(group.pattern)):
        return "other"
    return group.kind


def kind_of(group: TensorGroup, architecture: str | None) -> str:
    """The same, where the class's row of linear_names.json does not say otherwise."""
    kept, converted = _rows().get(architecture or "", (frozenset(), frozenset()))
    kind = kind_by_name(group)
    if kind in _LINEAR:
        return "other" if group.pattern in kept else kind
    return "linear" if group.pattern in converted else kind


def is_compared(architecture: str | None) -> bool:
    """Whether the class's names were held against its modules, so that nothing is kept or converted but what is said here."""
    return architecture in _rows()


@cache
def _rows() -> Mapping[str, tuple[frozenset[str], frozenset[str]]]:
    found = {}
    for row in table("linear_names.json")["rows"]:
        names = frozenset(row["kept"]), frozenset(row["converted"])
        found.update(dict.fromkeys(row["architectures"], names))
    return found
