"""Which of a repository's files are its weights: one set, never the same weights twice."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hubaudit.types import RepoFile

_SHARD = re.compile(
    r"(?P<stem>.+?)(?P<mark>[-_])(?P<number>[0-9]{1,5})-of-(?P<count>[0-9]{1,5})\.safetensors", re.DOTALL
)
_INDEX_SUFFIX = ".safetensors.index.json"
#: The order in which transformers looks for weights in a folder: `_get_resolved_checkpoint_files` in modeling_utils.py, v5.23.0.
_FIRST_STEMS = ("model", "diffusion_pytorch_model", "adapter_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The weight files to read: ``files`` as the listing suggests, ``index`` the file that has the last word on them.

    ``missing`` are shards that the names of the others promise and the listing lacks.
    ``unread`` names the weight files that hold the same weights another way, or ones no loader would take.
    """

    files: tuple[str, ...]
    index: str | None = None
    missing: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def select_weights(listing: Sequence[RepoFile]) -> Selection:
    """Choose one set of safetensors weights from the top folder, as a loader would: one file, else an index, else loose shards."""
    names = sorted({file.path for file in listing if "/" not in file.path})
    weights = [name for name in names if name.endswith(".safetensors")]
    stems = sorted(
        {_stem(name) for name in weights} | {_stem(name) for name in names if name.endswith(_INDEX_SUFFIX)}, key=_rank
    )
    if not stems:
        return Selection(files=())
    whole, index = f"{stems[0]}.safetensors", stems[0] + _INDEX_SUFFIX
    if whole in weights:
        chosen = Selection(files=(whole,))
    else:
        chosen = replace(
            _shards([name for name in weights if _stem(name) == stems[0]]), index=index if index in names else None
        )
    return replace(chosen, unread=tuple(name for name in weights if name not in chosen.files))


def _shards(names: list[str]) -> Selection:
    """The shards that belong together: of several sets, cut into other numbers of files, the one that lacks least."""
    sets: defaultdict[str, dict[int, re.Match[str]]] = defaultdict(dict)
    for name in names:
        shard = _SHARD.fullmatch(name)
        if shard is not None:
            sets[shard["count"]].setdefault(int(shard["number"]), shard)
    return min(
        (_set_of(found) for found in sets.values()), key=lambda one: len(one.missing), default=Selection(files=())
    )


def _set_of(found: dict[int, re.Match[str]]) -> Selection:
    """One set of shards and what it lacks; they are numbered from 1, by some tools from 0."""
    example = next(iter(found.values()))
    before, after = example.string[: example.start("number")], example.string[example.end("number") :]
    first = 0 if 0 in found else 1
    missing = (number for number in range(first, first + int(example["count"])) if number not in found)
    return Selection(
        files=tuple(sorted(shard.string for shard in found.values())),
        missing=tuple(f"{before}{number:0{len(example['number'])}}{after}" for number in missing),
    )


def _stem(name: str) -> str:
    if name.endswith(_INDEX_SUFFIX):
        return name.removesuffix(_INDEX_SUFFIX)
    shard = _SHARD.fullmatch(name)
    return shard["stem"] if shard else name.removesuffix(".safetensors")


def _rank(stem: str) -> tuple[int, str]:
    return (_FIRST_STEMS.index(stem) if stem in _FIRST_STEMS else len(_FIRST_STEMS), stem)
