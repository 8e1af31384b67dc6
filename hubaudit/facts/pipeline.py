"""Pipelines of diffusers and models of sentence-transformers: one set of facts for each part, and the whole as their sum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hubaudit.errors import CannotAuditError
from hubaudit.facts.loading import load_dtype, with_residence
from hubaudit.facts.parts import part_of, whole_of, with_sums
from hubaudit.formats.parts import MODULES, PIPELINE, module_parts, pipeline_parts
from hubaudit.types import Sourced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hubaudit.formats.parts import Part
    from hubaudit.types import ModelFacts, RepoSnapshot

    Understand = Callable[[RepoSnapshot], ModelFacts]

_SHAPELESS = "a pipeline has no shape of its own: see its components"
_FLOAT32 = (
    "default:diffusers loads float32 unless a dtype is asked for (pipelines/pipeline_loading_utils.py at 58eb52c0)"
)
_TRANSFORMER = "Transformer"


def understand_pipeline(snapshot: RepoSnapshot, understand: Understand) -> ModelFacts | None:
    """A diffusers pipeline; ``None`` where the repository is none.

    Raises:
        CannotAuditError: no part has a config or weights that could be read.
    """
    index = snapshot.configs.get(PIPELINE)
    named = () if index is None else pipeline_parts(index)
    if index is None or not named:
        return None
    parts = tuple(_pipeline_parts(snapshot, named, understand))
    if not parts:
        raise CannotAuditError(
            f"nothing to audit in `{snapshot.repo_id}`: no part of the pipeline has weights",
            hint="see model_index.json",
        )
    class_name = index.get("_class_name")
    whole = whole_of(
        parts,
        library="diffusers",
        architecture=class_name if isinstance(class_name, str) else None,
        why_unknown=_SHAPELESS,
    )
    absent = tuple(
        f"{part.name}: named by {PIPELINE} and not in the repository"
        for part in named
        if part.library is not None and not _is_there(snapshot, part.folder)
    )
    return replace(whole, dtype=Sourced(value="F32", where=_FLOAT32), missing=(*whole.missing, *absent))


def _pipeline_parts(snapshot: RepoSnapshot, named: tuple[Part, ...], understand: Understand) -> Iterator[ModelFacts]:
    for part in named:
        facts = _understood(snapshot, part, understand)
        if facts is None:
            continue
        config = snapshot.configs.get(f"{part.folder}/config.json", {})
        own_class = config.get("_class_name")
        # transformers' classes (the safety checker is one, under another library's name) take the dtype of their config; those of diffusers
        # begin in float32, and weights are copied into that.
        is_transformers = part.library != "diffusers" and own_class is None
        yield with_residence(
            replace(
                facts,
                library=part.library or facts.library,
                architecture=facts.architecture or (own_class if isinstance(own_class, str) else part.class_name),
                family=facts.family if is_transformers else "other",
                dtype=facts.dtype if is_transformers else Sourced(value="F32", where=_FLOAT32),
            )
        )


def understand_modules(snapshot: RepoSnapshot, understand: Understand) -> ModelFacts | None:
    """A sentence-transformers model; ``None`` where the repository is none. Poolings and normalizations have no weights and are no parts.

    What the transformer is, the whole is; a Dense module's weights come on top, in the transformer's dtype (sentence-transformers 6.2.0,
    base/model.py casts every module to that of the first).
    """
    table = snapshot.configs.get(MODULES)
    named = () if table is None else module_parts(table)
    if not named:
        return None
    parts = [(part, facts) for part in named if (facts := _understood(snapshot, part, understand)) is not None]
    if not parts:
        return None
    main = next((facts for part, facts in parts if part.class_name == _TRANSFORMER), parts[0][1])
    if len(parts) == 1:
        return replace(main, library="sentence-transformers", name=None)
    dtype = Sourced(value=load_dtype(main.dtype), where="rule:the dtype of the first module")
    modules = tuple(
        with_residence(
            facts if facts is main else replace(facts, architecture=part.class_name, family="other", dtype=dtype)
        )
        for part, facts in parts
    )
    return with_sums(replace(main, library="sentence-transformers", name=None), modules)


def _understood(snapshot: RepoSnapshot, part: Part, understand: Understand) -> ModelFacts | None:
    """The facts of one part; ``None`` where it has neither weights nor a model's config, as schedulers and tokenizers have not."""
    alone = part_of(snapshot, part.folder)
    has_weights = bool(alone.weights or alone.chosen)
    if not has_weights and (part.folder == "" or "config.json" not in alone.configs):
        return None
    if not has_weights and part.library not in ("diffusers", "transformers"):
        return None
    try:
        return replace(understand(alone), name=part.name)
    except CannotAuditError:
        return None


def _is_there(snapshot: RepoSnapshot, folder: str) -> bool:
    return any(file.path.startswith(f"{folder}/") for file in snapshot.files)
