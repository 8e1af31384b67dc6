"""A replay as the snapshot that PyTorch's own page, https://pytorch.org/memory_viz, opens: plain lists and dicts, pickled."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from hubaudit.exact.events import Alloc, BlasCall, Mark, Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.exact.events import Event, Trace
    from hubaudit.exact.replay import Replay, Request

_PROTOCOL = 4


def to_pickle(replayed: Replay, trace: Trace) -> bytes:
    """The bytes of a snapshot file. Each allocation's frames are its component, its operator and the phase, where a program's own would be.

    The form is that of ``torch.cuda.memory._snapshot()``; times are the numbers of events. Writing a pickle runs nothing.
    """
    phases = list(_phases(trace))
    history: list[dict[str, Any]] = []
    for request in replayed.requests:
        history += _entries(request, trace.events[request.event], phases[request.event])
    snapshot = {"segments": [], "device_traces": [history], "allocator_settings": {}, "external_annotations": []}
    return pickle.dumps(snapshot, protocol=_PROTOCOL)


def _phases(trace: Trace) -> Iterator[str]:
    """For each event the phase in which it lies."""
    ends = [(at, event.label) for at, event in enumerate(trace.events) if isinstance(event, Mark)]
    labels = iter([*ends, (len(trace.events), "end")])
    end, label = next(labels)
    for at in range(len(trace.events)):
        if at > end:
            end, label = next(labels)
        yield label


def _entries(request: Request, event: Event, phase: str) -> Iterator[dict[str, Any]]:
    """One entry for an allocation, two for a free, as torch writes them."""
    for action in ("alloc",) if request.is_alloc else ("free_requested", "free_completed"):
        yield {
            "action": action,
            "addr": request.address,
            "size": request.size_bytes,
            "stream": 0,
            "time_us": request.event,
            "frames": [
                {"name": request.component, "filename": "component", "line": 0},
                {"name": _operator(event), "filename": "operator", "line": 0},
                {"name": phase, "filename": "phase", "line": 0},
            ],
        }


def _operator(event: Event) -> str:
    if isinstance(event, (Alloc, Scratch)):
        return event.operator
    return event.library if isinstance(event, BlasCall) else "free"
