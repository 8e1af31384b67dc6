"""What changed in a repository between two revisions: facts, configs value by value, tensors, files, and the memory that follows from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from hubaudit.report.totals import total_of
from hubaudit.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.types import Config, Json, ModelFacts, Report, RepoSnapshot

Kind: TypeAlias = Literal["facts", "memory", "config", "tensors", "files"]

_FACTS = (
    "layers", "hidden_size", "intermediate_size", "attention_heads", "kv_heads", "head_dim", "vocab_size", "max_positions", "tied_embeddings", "dtype",
)  # fmt: skip
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference; ``before`` or ``after`` is ``None`` where there was, or is, no such thing."""

    kind: Kind
    name: str
    before: str | None
    after: str | None


def changes(before: tuple[RepoSnapshot, Report], after: tuple[RepoSnapshot, Report]) -> tuple[Change, ...]:
    """Everything that differs, what matters most first."""
    (old_snapshot, old), (new_snapshot, new) = before, after
    return (
        *_differing("facts", _facts(old.facts), _facts(new.facts)),
        *_differing("memory", _memory(old), _memory(new)),
        *_differing("config", _configs(old_snapshot), _configs(new_snapshot)),
        *_differing("tensors", _tensors(old.facts), _tensors(new.facts)),
        *_differing("files", _files(old_snapshot), _files(new_snapshot)),
    )


def _differing(kind: Kind, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield Change(kind=kind, name=name, before=before.get(name), after=after.get(name))


def _facts(facts: ModelFacts) -> dict[str, str]:
    count = facts.parameters
    said: dict[str, object] = {
        "parameters": None if count is None else f"{count.total:,}",
        "active parameters": None if count is None or count.active is None else f"{count.active:,}",
        "parameters by dtype": None
        if count is None
        else ", ".join(f"{dtype} {number:,}" for dtype, number in count.by_dtype.items()),
        "architecture": facts.architecture,
        "model type": facts.model_type,
        **{name.replace("_", " "): getattr(facts, name).value for name in _FACTS},
        "quantization": None if facts.quantization is None else facts.quantization.method,
        "weights": facts.format,
        "cache layout": _layout(facts),
    }
    return {
        name: f"{value:,}" if type(value) is int else str(value) for name, value in said.items() if value is not None
    }


def _layout(facts: ModelFacts) -> str | None:
    if facts.layer_plan is None:
        return None
    return " + ".join(f"{number} {kind}" for kind, number in Counter(layer.kind for layer in facts.layer_plan).items())


def _memory(report: Report) -> dict[str, str]:
    parts = {part.id: format_bytes(part.bytes) for part in report.estimate.components}
    return parts | {"total": total_of(report.estimate)}


def _configs(snapshot: RepoSnapshot) -> dict[str, str]:
    return {f"{name}#{path}": said for name, config in snapshot.configs.items() for path, said in _flat(config)}


def _flat(config: Config | Json, above: str = "") -> Iterator[tuple[str, str]]:
    """Every value under its path; a list is a value."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from _flat(value, f"{above}.{key}" if above else str(key))
    elif above:
        yield above, str(config)


def _tensors(facts: ModelFacts) -> dict[str, str]:
    """Groups under their pattern: how many, in which shapes and dtypes."""
    found: dict[str, list[str]] = {}
    for group in facts.tensor_groups:
        shape = " × ".join(map(str, group.shape)) or "scalar"
        found.setdefault(group.pattern, []).append(f"{group.count} × {group.dtype} [{shape}]")
    return {pattern: _short(sorted(said)) for pattern, said in found.items()}


def _short(words: list[str]) -> str:
    more = f" and {len(words) - _MOST_NAMES} more" if len(words) > _MOST_NAMES else ""
    return ", ".join(words[:_MOST_NAMES]) + more


def _files(snapshot: RepoSnapshot) -> dict[str, str]:
    return {
        file.path: "size unknown" if file.size_bytes is None else f"{file.size_bytes:,} B" for file in snapshot.files
    }
