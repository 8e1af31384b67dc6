"""A repository's listing → its sets of weights: which files belong together, and what is missing of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.formats.weight_names import WeightName, index_name, read_formats, weight_name
from hubaudit.types import WeightSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hubaudit.types import RepoFile

_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shards:
    """One set of shards: what stands around their numbers, how many they say they are, and which are there."""

    weights: WeightSet
    frame: tuple[str, str]
    count: int
    numbers: frozenset[int]

    @property
    def lacking(self) -> int:
        return max(self.count - len(self.numbers), 0)

    def missing(self) -> tuple[str, ...]:
        """The paths of those that are not there. Shards are numbered from 1, by some tools from 0."""
        before, after = self.frame
        width = len(self.weights.files[0]) - len(before) - len(after)
        first = 0 if 0 in self.numbers else 1
        absent = (number for number in range(first, first + self.count) if number not in self.numbers)
        return tuple(f"{before}{number:0{width}}{after}" for number in absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A set of weights with what its name tells: where it lies, under which stem, and whether it is cut into shards."""

    folder: str
    stem: str
    is_sharded: bool
    weights: WeightSet
    shards: _Shards | None = None

    def with_missing(self) -> WeightSet:
        """The set with the shards that it lacks: only of one that is read, because a hostile listing may lack millions."""
        return self.weights if self.shards is None else replace(self.weights, missing=self.shards.missing())

    @property
    def is_read(self) -> bool:
        """Whether this tool reads its format."""
        return self.weights.format in read_formats()

    @property
    def companion(self) -> str | None:
        """What it is, where it accompanies a GGUF model and is none by itself: a projector, a draft head."""
        if self.weights.format != "gguf" or not self.weights.files:
            return None
        named = self.weights.files[0].rpartition("/")[2]
        kinds: Mapping[str, str] = table("weight_files.toml")["gguf"]["companions"]
        return next((what for word, what in kinds.items() if word in named), None)


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
    cuts = sorted(
        _shards(plain, [name for name in names if name.is_shard], sizes),
        key=lambda cut: (cut.lacking, cut.weights.files),
    )
    found += [Found(folder=folder, stem=stem, is_sharded=True, weights=cut.weights, shards=cut) for cut in cuts]
    if index is None:
        return found
    # The index belongs to the set that lacks least; where no file bears its name, it may still name some.
    first = len(found) - len(cuts)
    owner = found[first] if cuts else Found(folder=folder, stem=stem, is_sharded=True, weights=plain)
    return [*found[:first], replace(owner, weights=replace(owner.weights, index=index)), *found[first + 1 :]]


def _shards(plain: WeightSet, names: Sequence[WeightName], sizes: Mapping[str, int | None]) -> Iterator[_Shards]:
    """The shards that belong together, by what stands around their numbers. A number that comes twice begins another set."""
    by_frame: defaultdict[tuple[str, str], list[dict[int, str]]] = defaultdict(list)
    for name in sorted(names, key=lambda name: name.path):
        number = name.number or 0
        cuts = by_frame[name.frame]
        cut = next((cut for cut in cuts if number not in cut), None)
        if cut is None:
            cuts.append({number: name.path})
        else:
            cut[number] = name.path
    counts = {name.frame: name.count or 0 for name in names}
    for frame, cuts in by_frame.items():
        for numbered in cuts:
            paths = tuple(sorted(numbered.values()))
            weights = replace(plain, files=paths, size_bytes=size_of(paths, sizes))
            yield _Shards(weights=weights, frame=frame, count=counts[frame], numbers=frozenset(numbered))
