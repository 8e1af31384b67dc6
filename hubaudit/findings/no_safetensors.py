"""Weights that are there as a pickle only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

#: Formats that hold numbers and nothing to run.
_SAFE = ("safetensors", "gguf")


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding where the weights that loaders take are a pickle, and no other set is of a format that cannot run code."""
    pickles = [one for one in snapshot.chosen if one.format == "torch"]
    if not pickles or any(one.format in _SAFE for one in (*snapshot.chosen, *snapshot.others)):
        return
    path = pickles[0].files[0] if pickles[0].files else pickles[0].index or ""
    yield RULE.found(f"`{path}` is a pickle, and there are no safetensors beside it", where=path)


RULE = Rule(
    id="no-safetensors",
    severity="warning",
    title="weights as a pickle only",
    about="A pickle can run code in whoever loads it, cannot be read lazily, and its header lies at the end. safetensors holds the same tensors, "
    "loads faster, and can be audited with one short read.",
    fix="convert: save_pretrained writes safetensors",
    check=check,
)
