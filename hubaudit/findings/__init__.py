"""What is wrong with a repository: rules over its snapshot and facts, one rule a file."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubaudit.findings.rule import Rule
    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

#: The modules that are rules, each named as its rule. Each has a ``RULE``; the others beside them are what several rules share.
_MODULES = (
    "adapter_base_missing", "card_context", "card_memory", "card_parameters", "card_precision", "config_section_unread", "dtype_mismatch", "duplicate_weights",
    "gated_without_terms", "head_shape_mismatch", "hidden_size_mismatch", "index_total_size", "index_weight_map", "layer_count_mismatch",
    "licence_missing", "missing_shard", "name_parameter_count", "no_safetensors", "quantization_mismatch", "remote_code", "rope_context",
    "suspicious_pickle", "tokenizer_beyond_embeddings", "tokenizer_max_length", "truncated_file", "tying_mismatch", "unpinned_revision",
    "unreadable_file", "unreferenced_shard", "vocab_size_mismatch",
)  # fmt: skip
MOST_OF_A_RULE = 100
_RANK = {"error": 0, "warning": 1, "info": 2}


def rule_ids() -> tuple[str, ...]:
    """The ids of all rules, known without importing one: a run says so at once where one is misspelt."""
    return tuple(name.replace("_", "-") for name in _MODULES)


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, by id."""
    found: list[Rule] = [import_module(f"hubaudit.findings.{name}").RULE for name in _MODULES]
    return tuple(sorted(found, key=lambda rule: rule.id))


def find(snapshot: RepoSnapshot, facts: ModelFacts) -> tuple[Finding, ...]:
    """All findings, the worst first; of a rule 100, the last of which says how many more there are: a card may make a claim on every line."""
    found = dict.fromkeys(finding for rule in rules() for finding in _some(list(rule.check(snapshot, facts))))
    return tuple(
        sorted(found, key=lambda finding: (_RANK[finding.severity], finding.rule, finding.where, finding.line or 0))
    )


def _some(found: list[Finding]) -> list[Finding]:
    if len(found) <= MOST_OF_A_RULE:
        return found
    last = found[MOST_OF_A_RULE - 1]
    more = f"{last.message}; and {len(found) - MOST_OF_A_RULE:,} more like it"
    return [*found[: MOST_OF_A_RULE - 1], replace(last, message=more)]
