"""CUDA's autocast for tensors without a device: which operators compute in 16 bits, which in 32, and the cache of weights.

``torch.autocast`` knows no meta device. The lists are those of aten/src/ATen/autocast_mode.h of torch 2.13 as far as models use them; the
casts of one call are made last argument first, as C++ evaluates them, so that the order of storages is right.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_HALF = (torch.float16, torch.bfloat16)
_LOWERED = {
    torch.matmul,
    torch.mm,
    torch.bmm,
    torch.addmm,
    torch.baddbmm,
    torch.addbmm,
    torch.mv,
    torch.einsum,
    torch.conv1d,
    torch.conv2d,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.__rmatmul__,
    torch.Tensor.bmm,
    torch.Tensor.mm,
    F.linear,
    F.conv1d,
    F.conv2d,
}
_RAISED = {
    torch.layer_norm,
    torch.rsqrt,
    torch.exp,
    torch.log,
    torch.pow,
    torch.cdist,
    torch.reciprocal,
    torch.Tensor.pow,
    torch.Tensor.__pow__,
    torch.Tensor.rsqrt,
    torch.Tensor.exp,
    torch.Tensor.log,
    F.layer_norm,
    F.group_norm,
    F.softplus,
    F.nll_loss,
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
}
_RESULT_RAISED = {
    torch.softmax,
    torch.log_softmax,
    torch.cumsum,
    torch.sum,
    torch.prod,
    torch.Tensor.sum,
    torch.Tensor.cumsum,
    torch.Tensor.softmax,
    F.softmax,
    F.log_softmax,
}
_NLL_ARGUMENTS = ("weight", "ignore_index", "reduction")


class Autocast(TorchFunctionMode):  # type: ignore[misc]
    """As ``torch.autocast("cuda", dtype)``. Weights are cast once and kept until the outermost context ends."""

    _paused: int = 0
    _stack: list[Autocast] = []  # noqa: RUF012 - shared on purpose: contexts nest
    _copies: dict[int, tuple[Any, Any]] = {}  # noqa: RUF012

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype

    @classmethod
    def current(cls) -> Autocast | None:
        """The innermost context."""
        return cls._stack[-1] if cls._stack and not cls._paused else None

    @classmethod
    @contextmanager
    def paused(cls) -> Iterator[None]:
        """As ``torch.autocast(..., enabled=False)``."""
        Autocast._paused += 1
        try:
            yield
        finally:
            Autocast._paused -= 1

    @classmethod
    def copies(cls) -> list[Any]:
        """The casts of weights that are kept now."""
        return [copy for _, copy in cls._copies.values()]

    def __enter__(self) -> Autocast:
        self._stack.append(self)
        super().__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.remove(self)
        if not self._stack:
            self._copies.clear()
        super().__exit__(*failure)

    def lowered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's fp32 tensors in 16 bits."""
        kwargs = {name: self._low(value) for name, value in reversed(list(kwargs.items()))}
        return tuple(reversed([self._low(value) for value in reversed(args)])), kwargs

    def _low(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._low(one) for one in value)
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or value.device.type != "meta":
            return value
        if not (value.requires_grad and value.is_leaf and not value._is_view()):
            return value.to(self.dtype)
        if id(value) not in self._copies:
            self._copies[id(value)] = (value, value.to(self.dtype))
        return self._copies[id(value)][1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if Autocast._paused:
            return func(*args, **kwargs)
        if func in _LOWERED:
            args, kwargs = self.lowered(args, kwargs)
        elif func is F.cross_entropy and args[0].dtype in _HALF:
            return _cross_entropy(*args, **kwargs)
        elif func in _RAISED or func is F.cross_entropy:
            args = tuple(_high(value) for value in args)
            kwargs = {name: _high(value) for name, value in kwargs.items()}
        elif func in _RESULT_RAISED and kwargs.get("dtype") is None and _is_half(args):
            kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)


def _cross_entropy(values: Any, target: Any, **kwargs: Any) -> Any:
    """The log-softmax in 16 bits, then the likelihood in 32: cross entropy itself is on no list, its second half is."""
    kept = {name: kwargs[name] for name in _NLL_ARGUMENTS if name in kwargs}
    with torch._C.DisableTorchFunctionSubclass():
        likelihood = F.log_softmax(values, 1, dtype=values.dtype)
        return F.nll_loss(likelihood.float(), target, **kept)


def _high(value: Any) -> Any:
    return value.float() if _is_half((value,)) and value.device.type == "meta" else value


def _is_half(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype in _HALF


def checkpoint_contexts() -> tuple[AbstractContextManager[None], Autocast]:
    """For gradient checkpointing: the forward pass as it is, the second one under autocast again."""
    return nullcontext(), Autocast()
