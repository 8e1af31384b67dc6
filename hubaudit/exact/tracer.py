"""Writes down every storage that a program makes and frees, in order, while it runs on tensors without data."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hubaudit.exact.answers import Answers
from hubaudit.exact.events import Alloc, BlasCall, EmptyCache, Event, Free, Mark, Scratch, Trace
from hubaudit.exact.in_place import in_place, sole_owner
from hubaudit.exact.kernels import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hubaudit.exact.device import Device
    from hubaudit.exact.routing import Routing

aten = torch.ops.aten
_CURRENT: list[Tracer] = []


def current() -> Tracer | None:
    """The tracer under which the program runs now."""
    return _CURRENT[-1] if _CURRENT else None


class Tracer(TorchDispatchMode):  # type: ignore[misc]
    """Records the storages of ``device_type``; with a ``device``, also what CUDA's kernels would take beside them.

    On ``meta`` it is the trace of a program that computes nothing; on ``cpu`` it measures one that does. A storage's death is seen by a
    weak reference to it, so that the order of events is the true one.
    """

    def __init__(self, device_type: str = "meta", device: Device | None = None) -> None:
        super().__init__()
        self.device_type = device_type
        self.device = device
        self.events: list[Event] = []
        self.components: dict[int, str] = {}
        self.answers = Answers()
        self.overwrites_scores = False
        self.routing: Routing | None = None
        sole_owner()
        self.overrides: dict[Any, Callable[..., Any]] = {}
        self._live: dict[int, tuple[int, Any, str]] = {}
        self._next_id = 0

    def __enter__(self) -> Tracer:
        _CURRENT.append(self)
        super().__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        _CURRENT.remove(self)
        super().__exit__(*failure)

    # --- what the program says ------------------------------------------------------------------------------------------------

    def mark(self, label: str) -> None:
        """A phase ends here."""
        self.events.append(Mark(label))

    def empty_cache(self) -> None:
        """The program gives cached memory back."""
        self.events.append(EmptyCache())

    def hold(self, tensors: Iterable[Any], component: str | None = None) -> None:
        """Record tensors that were made before, and say what they, or those seen already, are."""
        for tensor in tensors:
            found = self._record(tensor, "held")
            if found is not None and component is not None:
                self.components[found] = component

    def trace(self) -> Trace:
        """All that was recorded up to the last mark: what dies after it is the program's end, not its run."""
        last = max(
            (at for at, event in enumerate(self.events) if isinstance(event, Mark)), default=len(self.events) - 1
        )
        return Trace(tuple(self.events[: last + 1]), dict(self.components))

    # --- storages ---------------------------------------------------------------------------------------------------------------

    def _record(self, tensor: Any, operator: str, size_bytes: int | None = None) -> int | None:
        """The number of a tensor's storage, new or known; ``None`` for one of another device or without a storage."""
        if tensor.device.type != self.device_type:
            return None
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # a wrapper without memory of its own
            return None
        key = storage._cdata
        if key in self._live:
            return self._live[key][0]
        number, self._next_id = self._next_id, self._next_id + 1
        self._live[key] = (number, weakref.ref(storage, self._died(key, number)), operator)
        self.events.append(Alloc(number, storage.nbytes() if size_bytes is None else size_bytes, operator))
        return number

    def _died(self, key: int, number: int) -> Callable[[object], None]:
        def note(_: object) -> None:
            entry = self._live.get(key)
            if entry is not None and entry[0] == number:
                del self._live[key]
                self.events.append(Free(number))

        return note

    def operator_of(self, tensor: Any) -> str:
        """What made a tensor's storage; empty where that was not seen."""
        return self._live.get(tensor.untyped_storage()._cdata, (0, None, ""))[2]

    def rename(self, tensor: Any, operator: str) -> None:
        """Remember a tensor's storage as another operator's."""
        key = tensor.untyped_storage()._cdata
        if key in self._live:
            self._live[key] = (*self._live[key][:2], operator)

    # --- operators --------------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_backward = torch._C._current_graph_task_id() != -1
        if func is aten._local_scalar_dense.default and args[0].device.type == self.device_type == "meta":
            return self.answers.number(args[0], self.operator_of(args[0]))
        held = self._take_first(func, args, kwargs)
        into = in_place(self, func, args, is_backward=is_backward)
        if into is not None:
            self._note(func, args, kwargs, into, is_backward=is_backward)
            self.events += [Free(number) for number in reversed(held)]
            return into
        override = self.overrides.get(func)
        result = NotImplemented if override is None else override(self, *args, **kwargs)
        if result is NotImplemented:
            result = func(*args, **kwargs)
        self._note(func, args, kwargs, result, is_backward=is_backward)
        self.events += [Free(number) for number in reversed(held)]
        return result

    def _take_first(self, func: Any, args: Any, kwargs: Any) -> list[int]:
        """What the kernel takes before its results are made; the numbers of what it holds until it ends."""
        rule = tables.FIRST.get(func)
        if rule is None or self.device is None:
            return []
        held, passing = rule(_bound(func, args, kwargs, None), self.device)
        numbers = [self._next_id + at for at in range(len(held))]
        self._next_id += len(held)
        self.events += [Alloc(number, size, func._schema.name) for number, size in zip(numbers, held, strict=True)]
        self.components |= dict.fromkeys(numbers, "workspace")
        if passing:
            self.events.append(Scratch(passing, func._schema.name))
        return numbers

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any, *, is_backward: bool) -> None:
        self._record_results(func, args, kwargs, result)
        self.answers.notice(self, func, args, result)
        if self.device is None:
            return
        library = tables.BLAS_LIBRARY.get(func)
        if library is not None:
            self.events.append(BlasCall(library, is_backward))
        rule = tables.SCRATCH.get(func)
        if rule is not None:
            sizes = tuple(size for size in rule(_bound(func, args, kwargs, result), self.device) if size)
            if sizes:
                self.events.append(Scratch(sizes, func._schema.name))

    def _record_results(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = func._schema.name
        if isinstance(result, torch.Tensor):
            size_bytes = None
            if self.device is not None and func in tables.FULL_SIZE_LOSSES:
                size_bytes = tables.storage_bytes(func, _bound(func, args, kwargs, result))
            self._record(result, name, size_bytes)
        elif isinstance(result, (tuple, list)):
            order = tables.OUTPUT_ORDER.get(func, range(len(result))) if self.device else range(len(result))
            for at in order:
                for one in result[at] if isinstance(result[at], (tuple, list)) else (result[at],):
                    if isinstance(one, torch.Tensor):
                        self._record(one, name, self._shared_bytes(func, at, one, len(result)))

    def _shared_bytes(self, func: Any, at: int, tensor: Any, count: int) -> int | None:
        """Bytes of one of several results where they share a buffer, or the device does not hold it."""
        if self.device is None:
            return None
        if func in tables.ONE_BUFFER:
            return 0 if at else int(count * tensor.element_size())
        return 0 if at in tables.NOT_ON_DEVICE.get(func, ()) else None


def _bound(func: Any, args: Any, kwargs: Any, result: Any) -> dict[str, Any]:
    """An operator's arguments by name, with its result."""
    schema = func._schema.arguments
    named = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    named |= {argument.name: value for argument, value in zip(schema, args, strict=False)}
    return named | dict(kwargs) | {"result": result}
