"""Models made of parts: the snapshot of one part, and the sums of all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.types import ModelFacts, ParameterCount, Sourced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hubaudit.types import RepoSnapshot


def part_of(snapshot: RepoSnapshot, folder: str) -> RepoSnapshot:
    """The snapshot of what lies in one folder itself (``""`` is the repository's own), its configs under their plain names."""
    start = f"{folder}/" if folder else ""

    def is_here(path: str) -> bool:
        return path.startswith(start) and "/" not in path[len(start) :]

    return replace(
        snapshot,
        files=tuple(file for file in snapshot.files if is_here(file.path)),
        configs={path[len(start) :]: config for path, config in snapshot.configs.items() if is_here(path)},
        weights=tuple(file for file in snapshot.weights if is_here(file.path)),
        indexes=tuple(index for index in snapshot.indexes if is_here(index.path)),
        problems=tuple(problem for problem in snapshot.problems if is_here(problem.path)),
        chosen=tuple(one for one in snapshot.chosen if one.files and is_here(one.files[0])),
        others=(),
        library_name=None,
        hub_parameters=None,
        base=None,
        base_reason=None,
    )


def whole_of(parts: Sequence[ModelFacts], *, library: str, architecture: str | None, why_unknown: str) -> ModelFacts:
    """The facts of a model that is nothing but its parts: sums, and no shape of its own."""
    unknown: Sourced[int] = Sourced(value=None, where=why_unknown)
    return with_sums(
        ModelFacts(
            library=library,
            model_type=None,
            architecture=architecture,
            family="other",
            layers=unknown,
            hidden_size=unknown,
            intermediate_size=unknown,
            attention_heads=unknown,
            kv_heads=unknown,
            head_dim=unknown,
            vocab_size=unknown,
            max_positions=unknown,
            tied_embeddings=Sourced(value=None, where=why_unknown),
            dtype=Sourced(value=None, where=why_unknown),
            parameters=None,
            parameters_reason=None,
            tensor_groups=(),
            stored_bytes=None,
            file_bytes=None,
            layer_plan=(),
            layer_plan_reason=None,
        ),
        parts,
    )


def with_sums(facts: ModelFacts, parts: Sequence[ModelFacts]) -> ModelFacts:
    """``facts`` with the counts, sizes, disagreements and gaps of all its parts.

    A sum of which one part is not known is not known; the others' own figures are still theirs.
    """
    counts = [part.parameters for part in parts if part.parameters is not None]
    unknown = "; ".join(f"{part.name}: {part.parameters_reason}" for part in parts if part.parameters is None)
    return replace(
        facts,
        parameters=_sum_of(counts) if counts and not unknown else None,
        parameters_reason=None if counts and not unknown else unknown or "no part has weights",
        tensor_groups=tuple(
            replace(group, pattern=f"{part.name}/{group.pattern}") for part in parts for group in part.tensor_groups
        ),
        stored_bytes=_total([part.stored_bytes for part in parts]),
        file_bytes=_total([part.file_bytes for part in parts]),
        resident_bytes=_total([part.resident_bytes for part in parts]),
        disagreements=tuple(found for part in parts for found in part.disagreements),
        missing=tuple(f"{part.name}: {gap}" for part in parts for gap in part.missing),
        components=tuple(parts),
    )


def _sum_of(counts: Sequence[ParameterCount]) -> ParameterCount:
    active = [count.active for count in counts]
    return ParameterCount(
        total=sum(count.total for count in counts),
        loaded=sum(count.loaded for count in counts),
        active=sum(count for count in active if count is not None) if None not in active else None,
        by_dtype=_added(count.by_dtype for count in counts),
        by_role=_added(count.by_role for count in counts),
        extra=_added(count.extra for count in counts),
        where="rule:sum of the parts",
    )


def _added(tallies: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for tally in tallies:
        sums.update(tally)
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def _total(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
