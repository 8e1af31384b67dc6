"""What the user named → RepoSnapshot. The only room that talks to the Hub or opens files."""

from __future__ import annotations

from hubaudit.hub.fetching import fetch

__all__ = ["fetch"]
