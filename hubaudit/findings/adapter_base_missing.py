"""An adapter whose base model is not there any more, or cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.formats.adapters import adapter_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding where the base that adapter_config.json names is gone (error) or closed to this user (warning); being offline is neither."""
    adapter = adapter_config(snapshot)
    if adapter is None or snapshot.base is not None or snapshot.base_reason is None:
        return
    where = f"{adapter.path}#base_model_name_or_path"
    if snapshot.base_error == "access":
        yield RULE.found(
            f"the base model cannot be read: {snapshot.base_reason}",
            where=where,
            severity="warning",
            fix="ask for access to the base, or log in; the Hub does not tell strangers whether a closed repository exists",
        )
    elif snapshot.base_error in ("not_found", "cannot_audit", "malformed_file"):
        yield RULE.found(f"the base model cannot be used: {snapshot.base_reason}", where=where)


RULE = Rule(
    id="adapter-base-missing",
    severity="error",
    title="an adapter without its base",
    about="An adapter is of no use without the model it was trained on. Bases are renamed, made private, deleted, or were a path on the trainer's "
    "machine all along.",
    fix="set base_model_name_or_path to where the base is now",
    check=check,
)
