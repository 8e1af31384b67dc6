"""What an answer needs, imported in small steps while the Hub is waited for: whoever waits for the interpreter waits for one step at most."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Event

#: Modules that ``hubaudit.auditing`` imports, in an order in which each takes some milliseconds more; first what reading needs too.
STEPS = (
    "hubaudit.types",
    "hubaudit.formats.documents",
    "hubaudit.formats.parts",
    "hubaudit.data.dtypes",
    "hubaudit.facts.packing_layouts",
    "hubaudit.facts.packing",
    "hubaudit.facts.skeleton",
    "hubaudit.facts.headers",
    "hubaudit.facts.repository",
    "hubaudit.estimate.setting",
    "hubaudit.estimate.runtimes",
    "hubaudit.estimate.cuda_blocks",
    "hubaudit.estimate.generation",
    "hubaudit.auditing",
)
PRINTERS = {
    "human": ("rich.console", "hubaudit.report.human"),
    "json": ("hubaudit.report.wire",),
    "jsonl": ("hubaudit.report.wire",),
    "csv": ("hubaudit.report.tabular",),
    "markdown": ("hubaudit.report.tabular",),
    "agent": ("hubaudit.report.agent",),
    "github": ("hubaudit.report.github",),
    "sarif": ("hubaudit.report.sarif",),
}


def get_ready(output_format: str, may_compute: Event) -> None:
    """Import what an answer in ``output_format`` needs, whenever ``may_compute``."""
    for module in (*STEPS, *PRINTERS[output_format]):
        may_compute.wait()
        import_module(module)
    from hubaudit.auditing import prepare

    prepare()
