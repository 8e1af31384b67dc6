"""What the rules on disagreements share: config and weight files are two witnesses, and each rule hears them on one subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.findings.rule import Rule
    from hubaudit.types import Finding, ModelFacts


def differences(rule: Rule, facts: ModelFacts, *subjects: str) -> Iterator[Finding]:
    """One finding for each disagreement on one of ``subjects``, of the model and of its parts."""
    for folder, one in _own_models(facts):
        for disagreement in one.disagreements:
            if disagreement.subject not in subjects:
                continue
            is_index = disagreement.subject.startswith("index")
            yield rule.found(
                f"{disagreement.subject}: {'the index' if is_index else 'the config'} says {disagreement.config_says}, "
                f"{'the shards hold' if is_index else 'the files'} {disagreement.files_say}; used: {disagreement.used}",
                where=f"{folder}{disagreement.where}",
            )


def _own_models(facts: ModelFacts) -> Iterator[tuple[str, ModelFacts]]:
    """The models of this repository, and the folder of each: an adapter's base is another repository's affair."""
    if facts.library == "peft":
        yield from (("", part) for part in facts.components if part.name == "adapter")
        return
    yield "", facts
    if facts.library == "diffusers":
        yield from ((f"{part.name}/", part) for part in facts.components)
