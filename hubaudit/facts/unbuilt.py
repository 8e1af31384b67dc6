"""Which stored tensors a runtime does not build, and why: prediction layers, buffers of older versions, second copies, parts that the class lacks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.data import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hubaudit.types import TensorGroup

MTP = "mtp"
BUFFER = "buffer"
TIED = "tied head"
UNUSED = "unused"
#: The language model's layers, and not those of a tower beside it.
_LAYER = re.compile(r"(?:(?:model|language_model|llm|transformer|backbone)\.){0,3}layers\.(\d+)\.")
#: Only a multi-token-prediction layer joins the embedding of the next token to the hidden state: DeepSeek-V3 (arXiv 2412.19437, section 2.2), GLM-4.5.
_JOINS = (".eh_proj.weight", ".enorm.weight", ".hnorm.weight")
_MAX_EXTRA_LAYERS = 64
#: What older checkpoints call the two parameters of a norm: "legacy" in conversion_mapping.py, transformers 5.23.0.
_OLD_NORM = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
#: Weights that share the input embedding's data where the config ties them: `_tied_weights_keys` of the model classes, transformers 5.23.0.
_EMBEDDING = re.compile(
    r"(^|\.)(shared|embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings\.word_embeddings)\.weight$"
)
_COPIES = re.compile(
    r"(^|\.)(lm_head|embed_out|lm_head\.decoder|predictions\.decoder|vocab_projector|generator_lm_head)\.weight$"
    r"|^output\.weight$|(^|\.)(encoder|decoder)\.embed_tokens\.weight$"
)

_ENCODERS = re.compile(r"(^|\.)encoder\.embed_tokens\.weight$")


def prediction_layers(
    names: Iterable[str], *, layers: int | None, extra_layers: int
) -> Callable[[Sequence[str]], Sequence[str | None]]:
    """A function from tensors' names to ``"mtp"`` for each that belongs to a multi-token-prediction layer, ``None`` for others.

    Such are layers past the last where the config says that so many follow, and layers that hold what only such layers have. transformers 5.23
    does not build them (``_keys_to_ignore_on_load_unexpected`` of deepseek_v3, glm4_moe, glm_moe_dsa, hy_v3).

    Args:
        names: all tensors' names.
        layers: how many layers the config says the language model has.
        extra_layers: how many prediction layers it says follow them.
    """
    joins = [name for name in names if name.endswith(_JOINS)]
    found = {match[0] for name in joins if (match := _LAYER.match(name))}
    said = set() if layers is None else {str(layers + index) for index in range(min(extra_layers, _MAX_EXTRA_LAYERS))}
    numbers = said | {prefix.rstrip(".").rpartition(".")[2] for prefix in found}
    marks = tuple(f"layers.{number}." for number in numbers)

    def why(names: Sequence[str]) -> Sequence[str | None]:
        # almost every name is told by this alone, and models have 100,000 of them
        likely = {name for mark in marks for name in names if mark in name}
        return [MTP if name in likely and is_of_one(name) else None for name in names]

    def is_of_one(name: str) -> bool:
        match = _LAYER.match(name)
        return match is not None and (match[1] in said or match[0] in found)

    return why


def mark_unbuilt(groups: Iterable[TensorGroup], *, architecture: str | None, is_tied: bool) -> tuple[TensorGroup, ...]:
    """The groups, those named that no runtime builds: by unbuilt.toml, and second copies of tied weights."""
    is_saved = _saved(architecture)
    marked = [replace(group, extra=_why(group, architecture, is_saved)) for group in groups]
    return _mark_tied_copies(marked, architecture) if is_tied else tuple(marked)


def mark_left_over(groups: Sequence[TensorGroup], built: Iterable[TensorGroup]) -> tuple[TensorGroup, ...]:
    """The groups, those named that loading drops: beside every tensor that the class builds, files may hold parts that it lacks (BERT's pooler).

    transformers reports such as unexpected and leaves them out. Where but one tensor of the class is not found under its name and shape, nothing
    is said: files may call them otherwise, and loading renames.

    Args:
        groups: those of the files.
        built: what the class that the config names builds.
    """
    wanted: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for group in built:
        wanted[group.pattern, group.shape] += group.count
    prefix = _prefix(groups, wanted)
    held: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for group in groups:
        if group.extra is None:
            held[_as_built(group.pattern, prefix), group.shape] += group.count
    if any(held[key] != count for key, count in wanted.items()):
        return tuple(groups)
    return tuple(
        group
        if group.extra is not None or (_as_built(group.pattern, prefix), group.shape) in wanted
        else replace(group, extra=UNUSED)
        for group in groups
    )


def _prefix(groups: Iterable[TensorGroup], wanted: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """What stands before every name where a file of a model with a head is loaded without it: ``bert.``."""
    first, shape = next(iter(wanted), ("", ()))
    names = [group.pattern for group in groups if group.shape == shape]
    before = {name.removesuffix(first) for name in names if name.endswith(f".{first}")}
    return "" if first in names else next((one for one in before if one.count(".") == 1), "")


def _as_built(pattern: str, prefix: str) -> str:
    for old, new in _OLD_NORM:
        if pattern.endswith(old):
            pattern = pattern.removesuffix(old) + new
    return pattern.removeprefix(prefix)


@cache
def _rows() -> tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...]:
    rows = table("unbuilt.toml")["row"]
    return tuple((re.compile(row["match"]), row["why"], tuple(row.get("architectures", ()))) for row in rows)


def _why(group: TensorGroup, architecture: str | None, is_saved: Callable[[str], bool]) -> str | None:
    """Why no runtime builds the group; a buffer that the class saves itself is built, whatever it is called."""
    if group.extra in (None, BUFFER) and is_saved(group.pattern):
        return None
    return group.extra if group.extra is not None else _by_name(group.pattern, architecture)


def _saved(architecture: str | None) -> Callable[[str], bool]:
    rows = [row for row in table("unbuilt.toml")["saved"] if (architecture or "").startswith(tuple(row["classes"]))]
    matches = [re.compile(row["match"]) for row in rows]
    return lambda name: any(match.search(name) for match in matches)


def _by_name(pattern: str, architecture: str | None) -> str | None:
    found = (why for match, why, only in _rows() if (not only or architecture in only) and match.search(pattern))
    return next(found, None)


def _mark_tied_copies(groups: Sequence[TensorGroup], architecture: str | None) -> tuple[TensorGroup, ...]:
    """Weights that the config ties to the input embedding and the file stores all the same: loaded once.

    Of several embeddings of one size (an encoder's and a decoder's beside the shared one), the first that is no copy by its name is the one.
    """
    is_apart = _apart(architecture)
    embeddings = [
        group
        for group in groups
        if group.extra is None and _EMBEDDING.search(group.pattern) and not is_apart(group.pattern)
    ]
    if not embeddings:
        return tuple(groups)
    own = min(embeddings, key=lambda group: _COPIES.search(group.pattern) is not None)
    return tuple(
        replace(group, extra=TIED) if _is_copy(group, own) and not is_apart(group.pattern) else group
        for group in groups
    )


def _apart(architecture: str | None) -> Callable[[str], bool]:
    """Whether the class has a weight of that name for itself, though the config ties weights."""
    rows = table("unbuilt.toml")
    embeddings = architecture in rows["embeddings_apart"]["architectures"]
    head = architecture in rows["heads_apart"]["architectures"]
    return lambda name: bool(
        (embeddings and _ENCODERS.search(name))
        or (head and not name.endswith("embed_tokens.weight") and _COPIES.search(name))
    )


def _is_copy(group: TensorGroup, embedding: TensorGroup) -> bool:
    return (
        group is not embedding
        and group.extra is None
        and group.count == embedding.count == 1
        and group.shape == embedding.shape
        and len(group.shape) == 2
        and group.kind != "scale"
        and _COPIES.search(group.pattern) is not None
    )
