"""The same weights several times over, in other formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot, WeightSet


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding that names the twins of what was read. Quantizations and variants of other precisions are no twins."""
    if facts.library == "peft" or not snapshot.chosen:
        return
    chosen = snapshot.chosen[0]
    if not chosen.files:  # an index whose shards are all missing: nothing is there twice
        return
    twins = [one for one in snapshot.others if one.note is None and _is_twin(one, chosen)]
    if not twins:
        return
    sizes = [one.size_bytes for one in twins]
    told = f", {sum(size for size in sizes if size is not None):,} bytes in all" if None not in sizes else ""
    names = ", ".join(dict.fromkeys(f"{one.format} ({one.files[0]})" for one in twins))
    yield RULE.found(f"beside {chosen.format} the same weights are there as {names}{told}", where=twins[0].files[0])


def _is_twin(one: WeightSet, chosen: WeightSet) -> bool:
    if not one.files or one.variant != chosen.variant or chosen.format == "gguf":
        return False
    return one.format != chosen.format or one.files[0].rpartition("/")[0] == chosen.files[0].rpartition("/")[0]


RULE = Rule(
    id="duplicate-weights",
    severity="info",
    title="the same weights in several formats",
    about="Each copy costs storage and, for whoever clones the repository whole, download. They can also drift apart. The audit counts the set that "
    "loaders would choose; the names of the files, not their contents, tell that the others are copies.",
    fix="keep safetensors; put other formats into a repository of their own, or ignore this where users need them",
    check=check,
)
