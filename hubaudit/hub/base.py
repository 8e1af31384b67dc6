"""The base model of an adapter: another repository, read beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubaudit.errors import HubauditError, NetworkError, OfflineError
from hubaudit.formats.adapters import adapter_config
from hubaudit.formats.quoting import shown
from hubaudit.hub.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.types import RepoSnapshot


def with_base(snapshot: RepoSnapshot, read: Callable[[Reference], RepoSnapshot]) -> RepoSnapshot:
    """``snapshot`` with the base model that it names, where it is an adapter; else as it is.

    A base that is not there, gated, or not cached while offline leaves the adapter with the reason. A path counts as one only where the
    adapter itself lies on this machine: what a repository of the Hub says must not open files here.

    Args:
        snapshot: what was read.
        read: reads another repository, by its reference.

    Raises:
        NetworkError: the network failed; half an answer would be a wrong one.
    """
    adapter = adapter_config(snapshot)
    if adapter is None or snapshot.base is not None:
        return snapshot
    if adapter.base is None:
        return replace(snapshot, base_reason=f"{adapter.path} names no base model", base_error="not_found")
    reference = _reference(adapter.base, adapter.base_revision, is_local=snapshot.source == "local")
    if reference is None:
        return replace(
            snapshot,
            base_reason=f"{adapter.path} names {shown(adapter.base)}, which is no repository's id",
            base_error="not_found",
        )
    try:
        base = read(reference)
    except HubauditError as error:
        if isinstance(error, NetworkError) and not isinstance(error, OfflineError):
            raise
        return replace(snapshot, base_reason=f"{shown(adapter.base)}: {error.message}", base_error=error.kind)
    return replace(snapshot, base=base)


def _reference(base: str, revision: str | None, *, is_local: bool) -> Reference | None:
    """As transformers resolves it: a folder that is there, else an id."""
    if is_local and _is_folder(base):
        return Reference(kind="folder", name=base)
    from hubaudit.hub.names import is_repo_id  # and with it huggingface_hub, which a folder does not need

    return Reference(kind="hub", name=base, revision=revision) if is_repo_id(base) else None


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):
        return False
