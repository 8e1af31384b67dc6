"""Watch the memory of your own script: labelled snapshots, differences, leaks, and the timeline that exact mode draws."""

from __future__ import annotations

from hubaudit.monitor.monitor import Leak, MemoryMonitor, Snapshot

__all__ = ["Leak", "MemoryMonitor", "Snapshot"]
