"""One snapshot → the facts of what it holds, whichever shape it has: a model, a GGUF file, a pipeline, modules, an adapter with its base."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.facts.adapter import understand_adapter
from hubaudit.facts.checkpoints import models_own
from hubaudit.facts.loading import with_residence
from hubaudit.facts.model import understand as understand_model
from hubaudit.facts.other_libraries import as_its_library_says
from hubaudit.facts.pipeline import understand_modules, understand_pipeline

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts, RepoSnapshot


def understand(snapshot: RepoSnapshot) -> ModelFacts:
    """What the repository holds, as far as the files that were read tell.

    Raises:
        CannotAuditError: neither a usable config nor any readable weights.
    """
    facts = (
        understand_pipeline(snapshot, _one_model)
        or understand_modules(snapshot, _one_model)
        or understand_adapter(snapshot, understand)
        or _one_model(snapshot)
    )
    notes = tuple(one.note for one in snapshot.chosen if one.note is not None)
    return replace(
        facts,
        chosen=snapshot.chosen,
        other_weights=snapshot.others,
        missing=(*facts.missing, *(f"weights read: {note}" for note in dict.fromkeys(notes))),
    )


def _one_model(snapshot: RepoSnapshot) -> ModelFacts:
    """One model, with the bytes that its weights take once loaded."""
    formats = {file.format for file in snapshot.weights}
    if "gguf" in formats:
        from hubaudit.facts.gguf_facts import understand_gguf  # only for those who meet one

        return with_residence(replace(understand_gguf(snapshot), format="gguf"))
    checkpoints = models_own(_beside_its_config(snapshot))
    facts = as_its_library_says(understand_model(checkpoints.snapshot), checkpoints.snapshot)
    return with_residence(
        replace(
            facts,
            format=min(formats, default=None),
            missing=(*facts.missing, *checkpoints.notes),
        )
    )


def _beside_its_config(snapshot: RepoSnapshot) -> RepoSnapshot:
    """Configs that lie beside the weights in a folder count before those of the repository's own folder."""
    paths = [path for one in snapshot.chosen for path in one.files]
    folder = paths[0][: paths[0].rfind("/") + 1] if paths else ""
    beside = {path[len(folder) :]: config for path, config in snapshot.configs.items() if path.startswith(folder)}
    return replace(snapshot, configs={**snapshot.configs, **beside}) if folder else snapshot
