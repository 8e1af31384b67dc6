"""Whether an estimate fits into so many bytes, and on how many devices at least: comparisons, no search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from hubaudit.types import Estimate, Hardware

Verdict: TypeAlias = Literal["fits", "tight", "no", "unknown"]

#: What every process has of its own, however many devices share the rest.
_PER_DEVICE = frozenset({"Context", "Workspace"})


def on_one_device(estimate: Estimate, usable_bytes: int) -> Verdict:
    """``fits`` where the upper end of the band does, ``tight`` where only the estimate does, ``no`` where not even that.

    An estimate that had to leave a part out can be known not to fit, and never to fit.
    """
    if estimate.total_bytes > usable_bytes:
        return "no"
    if estimate.omitted:
        return "unknown"
    return "fits" if estimate.high_bytes <= usable_bytes else "tight"


def min_devices(estimate: Estimate, usable_bytes: int) -> int | None:
    """A lower bound on the devices needed: as if everything but each process's own overhead could be cut into equal parts.

    Real splits need at least as many: layers and heads are not divisible at will, and buffers for communication come on top. ``None``
    where the overhead alone fills a device.
    """
    own_bytes = sum(part.bytes for part in estimate.components if part.category in _PER_DEVICE)
    if usable_bytes <= own_bytes:
        return None
    return max(1, -(-(estimate.total_bytes - own_bytes) // (usable_bytes - own_bytes)))


def verdict(estimate: Estimate, hardware: Hardware) -> tuple[Verdict, str | None]:
    """The verdict on all devices of ``hardware``, and the reason where it is not plain from the numbers.

    One device that holds everything settles it. Otherwise several devices certainly do not fit where they are fewer than
    :func:`min_devices`; where they are enough in sum, how the model is split decides, which is not estimated here.
    """
    alone = on_one_device(estimate, hardware.usable_bytes)
    if alone == "unknown":
        return alone, f"the estimate lacks {', '.join(part.id for part in estimate.omitted)}"
    if alone != "no" or hardware.count == 1:
        return alone, None
    least = min_devices(estimate, hardware.usable_bytes)
    if least is None or hardware.count < least:
        return "no", None
    return "unknown", f"not on one device, and how {hardware.count} would share the model is not estimated"
