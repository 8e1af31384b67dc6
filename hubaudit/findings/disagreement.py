"""Config and weight files say different things of one fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.types import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import ModelFacts, RepoSnapshot

#: What loads, only differently from what was said, is a warning; what cannot load, or loads with random weights, is an error.
_ROWS: dict[str, tuple[str, Severity, str]] = {
    "dtype": ("dtype-mismatch", "warning", "set the config's dtype to that of the files, or convert the files"),
    "tied embeddings": ("tying-mismatch", "warning", "set tie_word_embeddings to what the files hold"),
    "layers": ("layer-count-mismatch", "error", "set num_hidden_layers to the layers that the files hold"),
    "hidden_size": ("hidden-size-mismatch", "error", "the config belongs to other weights"),
    "vocab_size": ("vocab-size-mismatch", "warning", "set vocab_size to the rows of the embedding"),
    "attention_heads × head_dim": ("head-shape-mismatch", "error", "check num_attention_heads and head_dim"),
    "kv_heads × head_dim": ("head-shape-mismatch", "error", "check num_key_value_heads and head_dim"),
    "index total_size": ("index-total-size", "warning", "write the index anew: save_pretrained does it"),
    "index weight_map": ("index-weight-map", "error", "upload the missing shards, or write the index anew"),
}


def check(_: RepoSnapshot, facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each disagreement."""
    for disagreement in facts.disagreements:
        rule, severity, help_text = _ROWS[disagreement.subject]
        is_index = disagreement.subject.startswith("index")
        message = (
            f"{disagreement.subject}: {'the index' if is_index else 'the config'} says {disagreement.config_says}, "
            f"{'the shards hold' if is_index else 'the files'} {disagreement.files_say}; used: {disagreement.used}"
        )
        yield Finding(rule=rule, severity=severity, message=message, where=disagreement.where, help=help_text)
