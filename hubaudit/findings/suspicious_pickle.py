"""A checkpoint whose pickle names more than tensors: what it names would be imported, and perhaps run, by whoever loads it unsafely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

_SHOWN = 4


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each file that names what ``torch.load(weights_only=True)`` does not accept. Nothing of it was imported or run here."""
    for file in snapshot.weights:
        named = file.metadata.get("suspicious_globals")
        if not isinstance(named, list) or not named:
            continue
        more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
        yield RULE.found(
            f"`{file.path}` is a pickle that names {', '.join(map(shown, named[:_SHOWN]))}{more}; nothing of it was run",
            where=file.path,
        )


RULE = Rule(
    id="suspicious-pickle",
    severity="error",
    title="a pickle that names more than tensors",
    about="A torch checkpoint is a pickle: a program that imports what it names and calls it. The opcodes were read one by one and nothing was run; "
    "names that torch.load(weights_only=True) refuses are what this is about.",
    fix="do not load it with weights_only=False; ask for safetensors",
    check=check,
)
