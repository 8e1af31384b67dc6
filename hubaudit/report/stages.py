"""Whether a device holds each way to share a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Literal

    from hubaudit.types import Report, StageShare


def verdict_on(report: Report, stage: StageShare) -> Literal["fits", "tight", "no", "unknown"] | None:
    """The verdict on the first device that was asked about, by the whole band; ``None`` where none was."""
    if not report.fit:
        return None
    usable = report.fit[0].hardware.usable_bytes
    if stage.total_bytes > usable:
        return "no"
    if report.estimate.omitted:
        return "unknown"
    return "tight" if stage.high_bytes > usable else "fits"
