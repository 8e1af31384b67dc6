"""The context that the config names is not what its rope scaling makes of the original one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.context import rope_scaling
from hubaudit.findings.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.findings.context import RopeScaling
    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

#: Kinds whose factor is the stretch itself. Llama 3's factor is one of four settings, longrope's stretch is max / original.
_STRETCHING = ("yarn", "linear", "dynamic")
_NEAR = 0.01


def check(snapshot: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """Findings on a context that is neither the original nor the stretched one, and on factor lists of the wrong length."""
    rope = rope_scaling(snapshot)
    if rope is None:
        return
    said, original, reach = facts.max_positions.value, rope.original_tokens, rope.reach
    if rope.kind not in _STRETCHING or said is None or reach is None:
        pass  # the context is not told by two figures
    elif said != original and abs(said - reach) > _NEAR * reach:
        yield RULE.found(
            f"max_position_embeddings is {said:,}, and {rope.kind} stretches {original:,} by {rope.factor:g} to {reach:,}",
            where=rope.where,
        )
    if rope.kind in ("longrope", "su"):
        yield from _factors(rope, facts)


def _factors(rope: RopeScaling, facts: ModelFacts) -> Iterator[Finding]:
    """Longrope has a factor for each pair of rotated dimensions; how many are rotated, a partial_rotary_factor may say."""
    head_dim = facts.head_dim.value
    for key in ("short_factor", "long_factor"):
        factors = rope.section.get(key)
        if head_dim is not None and isinstance(factors, list) and len(factors) > head_dim // 2:
            yield RULE.found(
                f"{key} has {len(factors)} factors, and a head of {head_dim} has {head_dim // 2} pairs",
                where=f"{rope.where}.{key}",
                severity="error",
                fix="the rope scaling belongs to another model",
            )


RULE = Rule(
    id="rope-context",
    severity="warning",
    title="context length and rope scaling disagree",
    about="yarn, linear and dynamic scaling stretch original_max_position_embeddings by factor; max_position_embeddings must be the one or the other. "
    "Engines take one of the three figures for the longest context, and not all the same one.",
    fix="set max_position_embeddings to original_max_position_embeddings × factor",
    check=check,
)
