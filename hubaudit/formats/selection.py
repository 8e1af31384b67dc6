"""Which of a repository's files are its weights: one set, never the same weights twice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.types import RepoFile

_SHARD = re.compile(r"(?P<stem>.+?)[-_](?P<number>\d+)-of-(?P<count>\d+)\.safetensors")
_INDEX_SUFFIX = ".safetensors.index.json"
#: The order in which transformers looks for weights in a folder: `_get_resolved_checkpoint_files` in modeling_utils.py, v5.23.0.
_FIRST_STEMS = ("model", "diffusion_pytorch_model", "adapter_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The weight files to read: ``files`` as the listing suggests, ``index`` the file that has the last word on them."""

    files: tuple[str, ...]
    index: str | None = None
    unread: tuple[str, ...] = ()


def select_weights(listing: Sequence[RepoFile]) -> Selection:
    """Choose one set of safetensors weights from the top folder, as a loader would: one file, else an index, else loose shards.

    ``unread`` names the weight files that hold the same weights another way, or ones no loader would take.
    """
    names = sorted(file.path for file in listing if "/" not in file.path)
    weights = [name for name in names if name.endswith(".safetensors")]
    stems = sorted(
        {_stem(name) for name in weights} | {_stem(name) for name in names if name.endswith(_INDEX_SUFFIX)}, key=_rank
    )
    for stem in stems:
        chosen = _of_stem(stem, names, weights)
        if chosen.files or chosen.index:
            rest = tuple(name for name in weights if name not in chosen.files)
            return Selection(files=chosen.files, index=chosen.index, unread=rest)
    return Selection(files=(), unread=tuple(weights))


def _of_stem(stem: str, names: list[str], weights: list[str]) -> Selection:
    whole, index = f"{stem}.safetensors", stem + _INDEX_SUFFIX
    if whole in weights:
        return Selection(files=(whole,))
    shards = tuple(name for name in weights if _stem(name) == stem)
    return Selection(files=shards, index=index if index in names else None)


def _stem(name: str) -> str:
    if name.endswith(_INDEX_SUFFIX):
        return name.removesuffix(_INDEX_SUFFIX)
    shard = _SHARD.fullmatch(name)
    return shard["stem"] if shard else name.removesuffix(".safetensors")


def _rank(stem: str) -> tuple[int, str]:
    return (_FIRST_STEMS.index(stem) if stem in _FIRST_STEMS else len(_FIRST_STEMS), stem)
