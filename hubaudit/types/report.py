"""What an audit answers: what fits, what is wrong, what a traced run would allocate, and all of it in one report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hubaudit.types.estimate import Estimate, Variant
from hubaudit.types.facts import ModelFacts
from hubaudit.types.values import Severity, Source
from hubaudit.types.workload import Hardware, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """An estimate against hardware, one process on one device.

    ``fits``: the whole band does; ``tight``: the estimate does, its upper end does not; ``no``: the estimate does not; ``unknown``: no
    answer can be given, and ``reason`` says why. ``headroom_bytes`` is what one device has left beside the estimate, negative where it
    lacks so much, ``None`` where the verdict is unknown: what is left then is not known either. ``max_batch`` and ``max_context`` (prompt and new tokens) are the largest that fit, each with the rest of the workload
    as asked, 0 where none does and ``None`` where there is no limit or it cannot be known. ``best_precision`` is the one nearest to the
    model's own that fits, ``None`` where none does. ``min_devices`` is a lower bound on the devices needed, as if all but the overheads
    of a process could be split evenly; ``None`` where no number is enough. Under vLLM ``cache_tokens`` is what its cache holds in all that
    it may take, and ``full_sequences`` how many of ``full_tokens``, the model's longest, run at once.

    Where several devices share the model, ``split`` says how, and all figures are those of the fullest; ``min_devices`` is then ``None``. Where one
    is not enough, ``devices_needed`` is the least number on which the engine's own split (``needed_split``) fits, ``None`` where none was found.
    """

    hardware: Hardware
    verdict: Literal["fits", "tight", "no", "unknown"]
    headroom_bytes: int | None
    max_batch: int | None
    max_context: int | None
    best_precision: str | None = None
    min_devices: int | None = None
    reason: str | None = None
    cache_tokens: int | None = None
    full_sequences: int | None = None
    full_tokens: int | None = None
    split: str | None = None
    devices_needed: int | None = None
    needed_split: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong with the repository: the rule's id, how bad, what, where, and what to do.

    ``where`` is a file's path, or ``path#field`` of a JSON file; ``line`` is the line of a text file, counted from 1.
    """

    rule: str
    severity: Severity
    message: str
    where: str
    help: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was audited."""

    repo_id: str
    revision: str | None
    commit: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPhase:
    """A stretch of a traced run: what ``torch.cuda`` would report at its end, and the largest that it would have reported within it."""

    name: str
    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFit:
    """Whether the traced run ends well on a device, by replaying it with that much memory.

    ``capacity_bytes`` is what the allocator can have: the device's usable bytes without the CUDA context. ``needed_bytes`` and
    ``needed_expandable_bytes`` are the fewest in which it runs, without and with expandable segments.
    """

    hardware: Hardware
    capacity_bytes: int
    fits: bool
    fits_expandable: bool
    needed_bytes: int
    needed_expandable_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMemory:
    """A traced run: ``estimate`` has ``fidelity`` exact, its components are those of the peak. ``label`` says what it claims to be."""

    label: str
    estimate: Estimate
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    phases: tuple[ExactPhase, ...]
    fits: tuple[ExactFit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One audit, whole. ``exact_unknown`` says why exact mode, where it was asked for, has no answer for this model."""

    subject: Subject
    facts: ModelFacts
    workload: Workload
    estimate: Estimate
    variants: tuple[Variant, ...] = ()
    fit: tuple[Fit, ...] = ()
    findings: tuple[Finding, ...] = ()
    exact: ExactMemory | None = None
    exact_unknown: str | None = None
