"""Makes torch take, on the meta device, the ways it takes on CUDA: attention, dropout, fused optimizers, autocast."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812
import torch.optim.optimizer as optimizers
import torch.utils._foreach_utils as foreach_utils

from hubaudit.exact.attention import attend
from hubaudit.exact.autocast import Autocast
from hubaudit.exact.tracer import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hubaudit.exact.device import Device


@contextmanager
def as_on_cuda(device: Device) -> Iterator[None]:
    """While this lasts, meta tensors are treated as tensors of ``device`` would be."""
    with ExitStack() as stack:
        for owner, name, replacement in _replacements(device):
            if hasattr(owner, name):
                stack.enter_context(patch.object(owner, name, replacement))
        yield


def _replacements(device: Device) -> Iterator[tuple[Any, str, Any]]:
    yield F, "scaled_dot_product_attention", partial(_attention, device)
    yield F, "dropout", partial(_dropout, F.dropout)
    yield torch.cuda, "empty_cache", _empty_cache
    yield torch, "tensor", _recorded(torch.tensor)
    yield torch, "as_tensor", _recorded(torch.as_tensor)
    yield torch, "autocast", _autocast(torch.autocast)
    yield torch.Tensor, "__setitem__", _setter(torch.Tensor.__setitem__)
    yield torch.Tensor, "__getitem__", _getter(torch.Tensor.__getitem__)
    for owner in (foreach_utils, optimizers):
        for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
            if hasattr(owner, name):
                yield owner, name, _with_meta(getattr(owner, name))


def _attention(device: Device, *args: Any, **kwargs: Any) -> Any:
    autocast = Autocast.current()
    if autocast is not None:
        args, kwargs = autocast.lowered(args, kwargs)
    return attend(device, *args, **kwargs)


def _dropout(
    plain: Callable[..., Any], input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    """CUDA drops with one kernel, which keeps a mask of bytes."""
    if not training or p == 0.0:
        return plain(input, p, training, inplace)
    return torch.native_dropout(input, p, True)[0]


def _autocast(plain: Any) -> Callable[..., Any]:
    """``torch.autocast``, which knows no meta device: there it pauses ours, or leaves it as it is."""

    def context(device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> Any:
        if device_type != "meta":
            return plain(device_type, dtype, enabled, cache_enabled)
        return nullcontext() if enabled else Autocast.paused()

    return context


def _recorded(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor from the host's values, which no dispatch mode sees on the meta device."""

    def construct(*args: Any, **kwargs: Any) -> Any:
        made, tracer = plain(*args, **kwargs), current()
        if tracer is not None:
            tracer.hold((made,))
        return made

    return construct


def _setter(plain: Callable[..., None]) -> Callable[..., None]:
    """``tensor[key] = number`` as CUDA does it: filled with a number of the host, where other devices get a tensor of their own for it."""

    def set_item(tensor: Any, key: Any, value: Any) -> None:
        if isinstance(value, (bool, int, float)) and tensor.device.type == "meta":
            if isinstance(key, torch.Tensor) and key.dtype == torch.bool:
                tensor.masked_fill_(key.reshape(*key.shape, *(1,) * (tensor.dim() - key.dim())), value)
                return
            if not any(isinstance(part, torch.Tensor) for part in (key if isinstance(key, tuple) else (key,))):
                value = torch.tensor(value, dtype=tensor.dtype, device="cpu")
        plain(tensor, key, value)

    return set_item


def _getter(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor[key]`` as CUDA does it: a list of numbers, or a tensor of the host, is taken to the device, and kept for the backward pass."""

    def moved(part: Any) -> Any:
        if isinstance(part, list) and part and all(type(one) is int for one in part):
            return torch.tensor(part, device="meta")
        if isinstance(part, torch.Tensor) and part.device.type == "cpu" and part.dim():
            return part.to("meta")
        return part

    def get_item(tensor: Any, key: Any) -> Any:
        if tensor.device.type == "meta" and isinstance(key, (tuple, list, torch.Tensor)):
            key = tuple(moved(part) for part in key) if isinstance(key, tuple) else moved(key)
        return plain(tensor, key)

    return get_item


def _empty_cache() -> None:
    tracer = current()
    if tracer is not None:
        tracer.empty_cache()


def _with_meta(plain: Callable[[], list[str]]) -> Callable[[], list[str]]:
    return lambda: [*plain(), "meta"]
