"""What the operating system counts for this process: resident memory, now and at most."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Pages of this process that lie in memory now; its peak where only that can be asked (macOS); ``None`` where neither can."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * int(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError, AttributeError):
        return peak_resident_bytes()


def peak_resident_bytes() -> int | None:
    """The most that it ever had; ``None`` where the system does not tell."""
    try:
        resource = import_module("resource")
    except ImportError:  # Windows
        return None
    peak = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else peak * 1024
