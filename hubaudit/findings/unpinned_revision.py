"""Code or weights that are fetched from a branch, which may change under whoever loads them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.formats.adapters import adapter_config
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

_COMMIT = re.compile("[0-9a-f]{40}")
_MAIN = "config.json"


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """Findings on code of another repository, on an adapter's base, and on a name without a commit where code would be run."""
    auto_map = snapshot.configs.get(_MAIN, {}).get("auto_map")
    entries = auto_map.values() if isinstance(auto_map, dict) else ()
    others = sorted({str(entry).partition("--")[0] for entry in entries if isinstance(entry, str) and "--" in entry})
    for other in others:
        yield RULE.found(
            f"code is loaded from {shown(other)}, at whatever its main branch holds that day",
            where=f"{_MAIN}#auto_map",
            severity="warning",
            fix="copy the code into this repository, or load with code_revision= set to a commit",
        )
    if isinstance(auto_map, dict) and snapshot.source in ("hub", "cache") and not _is_commit(snapshot.revision):
        yield RULE.found(
            f"the repository's code is run at {shown(snapshot.revision or 'main')}, which may move; this audit read {snapshot.commit}",
            where=f"{_MAIN}#auto_map",
        )
    adapter = adapter_config(snapshot)
    if adapter is not None and adapter.base is not None and not _is_commit(adapter.base_revision):
        yield RULE.found(
            f"the base model {shown(adapter.base)} is named without a commit",
            where=f"{adapter.path}#revision",
            fix="write the commit that the adapter was trained on into adapter_config.json's revision",
        )


def _is_commit(revision: str | None) -> bool:
    return revision is not None and _COMMIT.fullmatch(revision) is not None


RULE = Rule(
    id="unpinned-revision",
    severity="info",
    title="code or a base model from a branch, not a commit",
    about="A branch can be pushed to at any time. Where loading runs code, or adds an adapter to a base, the result may change without anybody here "
    "touching a file. Repositories without code are not told so: their weights are only data.",
    fix="name a commit: ORG/NAME@<40 hex digits>, or revision= in from_pretrained",
    check=check,
)
