"""A repository's listing → its sets of weights: which files belong together, and what is missing of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.formats.weight_names import WeightName, index_name, read_formats, weight_name
from hubaudit.types import WeightSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hubaudit.types import RepoFile

_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A set of weights with what its name tells: where it lies, under which stem, and whether it is cut into shards."""

    folder: str
    stem: str
    is_sharded: bool
    weights: WeightSet

    @property
    def is_read(self) -> bool:
        """Whether this tool reads its format."""
        return self.weights.format in read_formats()

    @property
    def is_companion(self) -> bool:
        """Whether it accompanies a GGUF model (a projector, a draft head) and is none by itself."""
        named = self.weights.files[0].rpartition("/")[2] if self.weights.files else ""
        return self.weights.format == "gguf" and any(
            word in named for word in table("weight_files.toml")["gguf"]["companions"]
        )


def find_sets(listing: Iterable[RepoFile]) -> tuple[Found, ...]:
    """All sets of weights, by folder and name. Every weight file is in exactly one of them; files of formats not read are one set a folder."""
    sizes: dict[str, int | None] = {}
    names: defaultdict[_Key, list[WeightName]] = defaultdict(list)
    indexes: dict[_Key, str] = {}
    for file in listing:
        sizes[file.path] = file.size_bytes
        if (name := weight_name(file.path)) is not None:
            names[_key(name)].append(name)
        elif (index := index_name(file.path)) is not None:
            indexes[_key(index)] = file.path
    found: list[Found] = []
    for key in sorted({*names, *indexes}):
        found += _sets_of(key, names.get(key, []), indexes.get(key), sizes)
    return tuple(found)


def size_of(paths: Iterable[str], sizes: Mapping[str, int | None]) -> int | None:
    """The bytes of all these files; ``None`` where one's is not known, or there are none."""
    known = [sizes.get(path) for path in paths]
    return sum(size for size in known if size is not None) if known and None not in known else None


def _key(name: WeightName) -> _Key:
    if name.format not in read_formats():
        return name.folder, name.format, "", ""
    return name.folder, name.format, name.stem, name.variant or ""


def _sets_of(key: _Key, names: Sequence[WeightName], index: str | None, sizes: Mapping[str, int | None]) -> list[Found]:
    folder, format, stem, variant = key
    plain = WeightSet(format=format, files=(), variant=variant or None)
    if format not in read_formats():
        paths = tuple(sorted(name.path for name in names))
        return [
            Found(
                folder=folder,
                stem="",
                is_sharded=False,
                weights=replace(plain, files=paths, size_bytes=size_of(paths, sizes)),
            )
        ]
    found = [
        Found(
            folder=folder,
            stem=stem,
            is_sharded=False,
            weights=replace(plain, files=(name.path,), size_bytes=sizes[name.path]),
        )
        for name in sorted(names, key=lambda name: name.path)
        if not name.is_shard
    ]
    shards = _shard_sets(plain, [name for name in names if name.is_shard], sizes)
    if index is not None:
        # The index belongs to the set that lacks least; where no file bears its name, it may still name some.
        first, *rest = shards or [plain]
        shards = [replace(first, index=index), *rest]
    return found + [Found(folder=folder, stem=stem, is_sharded=True, weights=shard) for shard in shards]


def _shard_sets(plain: WeightSet, names: Sequence[WeightName], sizes: Mapping[str, int | None]) -> list[WeightSet]:
    """The shards that belong together, by how many they say they are; the set that lacks least comes first."""
    by_count: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for name in sorted(names, key=lambda name: name.path):
        by_count[name.count or 0].setdefault(name.number or 0, name.path)
    sets = []
    for count, numbered in by_count.items():
        paths = tuple(sorted(numbered.values()))
        sets.append(replace(plain, files=paths, size_bytes=size_of(paths, sizes), missing=_missing(count, numbered)))
    return sorted(sets, key=lambda one: (len(one.missing), one.files))


def _missing(count: int, numbered: Mapping[int, str]) -> tuple[str, ...]:
    """Shards are numbered from 1, by some tools from 0."""
    example = next(iter(numbered.values()))
    number = str(next(iter(numbered)))
    before, _, after = example.rpartition("-of-")
    digits = len(before) - len(before.rstrip("0123456789"))
    first = 0 if 0 in numbered else 1
    lacking = (at for at in range(first, first + count) if at not in numbered)
    return tuple(f"{before[: len(before) - digits]}{at:0{max(digits, len(number))}}-of-{after}" for at in lacking)
