"""What the user named → RepoSnapshot. The only room that talks to the Hub or opens files."""

from __future__ import annotations

from hubaudit.errors import UsageError

try:
    from hubaudit.hub.fetching import fetch
except ValueError as error:  # huggingface_hub reads its settings while it is imported
    raise UsageError(
        f"huggingface_hub does not start: {error}",
        hint="check HF_ENDPOINT and the other HF_* variables of the environment",
    ) from error

__all__ = ["fetch"]
