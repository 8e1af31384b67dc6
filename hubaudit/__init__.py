"""What a Hugging Face model is, and what memory it needs.

>>> from hubaudit import audit
>>> report = audit("Qwen/Qwen2-0.5B-Instruct")  # doctest: +SKIP
>>> report.facts.parameters.total  # doctest: +SKIP
494032768
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hubaudit._version import __version__

if TYPE_CHECKING:
    from hubaudit.auditing import audit as audit
    from hubaudit.auditing import audit_snapshot as audit_snapshot
    from hubaudit.errors import HubauditError as HubauditError
    from hubaudit.fit.catalogue import hardware_named as hardware_named
    from hubaudit.hub import fetch as fetch
    from hubaudit.report.wire import to_wire as to_wire
    from hubaudit.types import Hardware as Hardware
    from hubaudit.types import Report as Report
    from hubaudit.types import RepoSnapshot as RepoSnapshot
    from hubaudit.types import Workload as Workload

_HOMES = {
    "audit": "hubaudit.auditing",
    "audit_snapshot": "hubaudit.auditing",
    "HubauditError": "hubaudit.errors",
    "hardware_named": "hubaudit.fit.catalogue",
    "fetch": "hubaudit.hub",
    "to_wire": "hubaudit.report.wire",
    "Hardware": "hubaudit.types",
    "Report": "hubaudit.types",
    "RepoSnapshot": "hubaudit.types",
    "Workload": "hubaudit.types",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the names are all strings


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that ``import hubaudit`` costs nothing (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
