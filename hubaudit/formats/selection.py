"""Which of a repository's files are its weights: one set for each model, never the same weights twice."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.errors import CannotAuditError, NotFoundError
from hubaudit.formats.weight_names import read_formats
from hubaudit.formats.weight_sets import Found, find_sets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hubaudit.types import RepoFile, WeightSet

_CHOOSE = "--file chooses another"
_SHOWN = 8
_OTHER = 4  # the last tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The sets to read: one, or one for each part of a pipeline that has weights; and all others, which are not counted."""

    chosen: tuple[WeightSet, ...] = ()
    others: tuple[WeightSet, ...] = ()


def select_weights(listing: Sequence[RepoFile]) -> Selection:
    """Choose one set of weights as loaders would.

    transformers, diffusers and PEFT have names that they look for (the order stands in ``weight_files.toml``); a variant is taken where there
    is nothing else, then any other safetensors file, then the GGUF file that llama.cpp takes, then any other torch checkpoint. The
    repository's own folder comes before the folders in it.
    """
    found = find_sets(listing)
    models = [one for one in found if one.is_read and one.companion is None]
    if not models:
        return Selection(others=_others(found, ()))
    has_adapter = any(file.path == "adapter_config.json" for file in listing)
    chosen = min(models, key=lambda one: _rank(one, has_adapter=has_adapter))
    if chosen.weights.format == "gguf":
        chosen = _gguf([one for one in models if one.weights.format == "gguf"])
    noted = replace(chosen.with_missing(), note=_why(chosen, models))
    return Selection(chosen=(noted,), others=_others(found, (chosen,)))


def select_parts(listing: Sequence[RepoFile], folders: Sequence[str], *, as_one: bool = True) -> Selection:
    """Choose one set for each of these folders (``""`` is the repository's own), as diffusers and sentence-transformers do.

    Only files that lie in the folder itself count.

    Args:
        listing: all files of the repository.
        folders: where the parts lie.
        as_one: whether safetensors are only read where every part has them, as diffusers does (``is_safetensors_compatible`` in
            pipelines/pipeline_loading_utils.py, 58eb52c0).
    """
    found = find_sets(listing)
    by_folder = {
        folder: [one for one in found if one.folder == folder and one.is_read and one.stem] for folder in folders
    }
    parts = [sets for sets in by_folder.values() if sets]
    is_compatible = not as_one or all(any(one.weights.format == "safetensors" for one in sets) for sets in parts)
    chosen = [
        min(sets, key=lambda one: (not is_compatible and one.weights.format != "torch", _rank(one))) for sets in parts
    ]
    noted = tuple(replace(one.with_missing(), note=_only_variant(one)) for one in chosen)
    return Selection(chosen=noted, others=_others(found, chosen, parts=folders))


def select_file(listing: Sequence[RepoFile], path: str) -> Selection:
    """The set that ``path`` is in: the file itself, or all the shards that it, or an index, belongs to.

    Raises:
        NotFoundError: no file of that name in the listing.
        CannotAuditError: it is no weight file, or of a format that this tool does not read.
    """
    found = find_sets(listing)
    for one in found:
        if path not in (*one.weights.files, one.weights.index):
            continue
        if not one.is_read:
            formats = ", ".join(sorted(read_formats()))
            raise CannotAuditError(
                f"`{path}` is {one.weights.format}, which hubaudit does not read", hint=f"it reads {formats}"
            )
        return Selection(chosen=(one.with_missing(),), others=_others(found, (one,)))
    names = [name for one in found if one.is_read for name in one.weights.files[:1]]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    hint = f"weights there: {', '.join(names[:_SHOWN])}{more}" if names else "there are no weights that hubaudit reads"
    if any(file.path == path for file in listing):
        raise CannotAuditError(f"`{path}` is no weight file", hint=hint)
    raise NotFoundError(f"no file `{path}`", hint=hint)


def _rank(one: Found, *, has_adapter: bool = False) -> tuple[object, ...]:
    """The less, the sooner it is taken."""
    depth = one.folder.count("/") + 1 if one.folder else 0
    tier = _tier(one)
    is_twin = has_adapter and one.stem != "adapter_model"
    return (tier == _OTHER, depth > 0, tier, is_twin, depth, one.folder, *_within(one))


def _tier(one: Found) -> int:
    """Names that loaders know, the same with a variant, other safetensors, GGUF, other checkpoints."""
    if _place(one) is not None:
        return 0 if one.weights.variant is None else 1
    return {"safetensors": 2, "gguf": 3}.get(one.weights.format, _OTHER)


def _within(one: Found) -> tuple[object, ...]:
    order = table("weight_files.toml")["variants"]["order"]
    variant = one.weights.variant or ""
    place = _place(one)
    if place is not None:
        return (order.index(variant) if variant in order else len(order), place, variant, one.weights.files)
    return (one.stem != "consolidated", -(one.weights.size_bytes or 0), one.weights.files)


def _place(one: Found) -> int | None:
    """Where loaders have this name in their order; ``None`` where they do not know it."""
    return _loaders().get((one.stem, one.weights.format, one.is_sharded))


@cache
def _loaders() -> dict[tuple[str, str, bool], int]:
    rows = table("weight_files.toml")["loader"]
    return {(row["stem"], row["format"], row["is_sharded"]): at for at, row in enumerate(rows)}


def _gguf(models: Sequence[Found]) -> Found:
    """The file that ``llama-cli -hf REPO`` would take: the first whose path has a preferred quantization in it, else the first."""
    models = sorted(models, key=lambda one: one.weights.files)
    for quant in table("weight_files.toml")["gguf"]["preferred"]:
        pattern = re.compile(rf"{quant}[.-]", re.IGNORECASE)
        for one in models:
            if pattern.search(one.weights.files[0]):
                return one
    return models[0]


def _why(chosen: Found, models: Sequence[Found]) -> str | None:
    """Why this set and no other, where that is not plain from the names that loaders know."""
    rivals = [one for one in models if one.weights.format == chosen.weights.format and _tier(one) == _tier(chosen)]
    if _tier(chosen) == 0:
        return f"in the folder `{chosen.folder}`" if chosen.folder else None
    if _tier(chosen) == 1:
        return _only_variant(chosen)
    if len(rivals) == 1:
        return None
    if chosen.weights.format == "gguf":
        return f"one of {len(rivals)}; llama.cpp takes Q4_K_M, else Q8_0, else the first; {_CHOOSE}"
    return f"one of {len(rivals)}, and no loader says which; the largest was taken; {_CHOOSE}"


def _only_variant(chosen: Found) -> str | None:
    variant = chosen.weights.variant
    return (
        f"only the variant is there: load it with variant={variant!a}"
        if variant and _place(chosen) is not None
        else None
    )


def _others(found: Iterable[Found], chosen: Iterable[Found], *, parts: Sequence[str] = ()) -> tuple[WeightSet, ...]:
    """What is left, smallest first within a format.

    Sets of one format and variant in a pipeline's parts are told as one, and so are all of a format that is not read.
    """
    taken = {one.weights.files for one in chosen}
    groups: defaultdict[tuple[str, ...], list[Found]] = defaultdict(list)
    for at, one in enumerate(found):
        if one.weights.files in taken or not one.weights.files:
            continue
        is_part = bool(one.folder) and one.folder in parts
        joint = not one.is_read or is_part
        groups[(one.weights.format, one.weights.variant or "", *(() if joint else (str(at),)))].append(one)
    merged = [_merged(group) for group in groups.values()]
    return tuple(
        sorted(merged, key=lambda one: (one.format not in read_formats(), one.format, one.size_bytes or 0, one.files))
    )


def _merged(group: Sequence[Found]) -> WeightSet:
    first = group[0].weights
    if len(group) == 1:
        what = group[0].companion
        return first if what is None else replace(first, note=f"{what} beside a model, none by itself")
    sizes = [one.weights.size_bytes for one in group]
    return replace(
        first,
        files=tuple(path for one in group for path in one.weights.files),
        size_bytes=sum(size for size in sizes if size is not None) if None not in sizes else None,
        index=None,
    )
