"""``scaled_dot_product_attention`` as torch's CUDA build dispatches it: the kernel by rule, then that kernel's own operator."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from hubaudit.exact.device import attention_rows
from hubaudit.exact.tracer import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.exact.device import Device

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_WIDEST_FLASH = 256


def chosen_kernel(
    device: Device,
    *,
    is_half: bool,
    is_masked: bool,
    is_grouped: bool,
    head_dim: int,
) -> str:
    """``flash``, ``efficient``, ``cudnn`` or ``math``: the first row of ``data/torch_cuda.toml`` that holds, else ``math``."""
    has = {"half": is_half, "masked": is_masked, "grouped": is_grouped}
    for row in attention_rows():
        if device.capability[0] not in row.get("majors", (device.capability[0],)):
            continue
        if all(row.get(name, value) == value for name, value in has.items()) and head_dim <= row.get(
            "head_dim", head_dim
        ):
            return str(row["kernel"])
    return "math"


def attend(
    device: Device,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The result of the kernel that CUDA would take, with that kernel's own storages.

    Source: sdp_utils.cpp and attention.cpp of torch 2.13; what each kernel refuses goes to the next.
    """
    kernel = chosen_kernel(
        device,
        is_half=query.dtype in _HALF,
        is_masked=attn_mask is not None,
        is_grouped=query.shape[-3] != key.shape[-3],
        head_dim=query.shape[-1],
    )
    if kernel == "cudnn" and _takes_cudnn(query, value):
        return _cudnn(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if attn_mask is None and _takes_flash(device, query, key, value, is_causal=is_causal, enable_gqa=enable_gqa):
        return _flash(query, key, value, dropout_p, is_causal, scale)
    mask = _additive(attn_mask, query)
    if _takes_efficient(query, key):
        return _efficient(query, key, value, mask, dropout_p, is_causal, scale)
    with _overwritten_scores():
        return aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]


@contextmanager
def _overwritten_scores() -> Iterator[None]:
    """The mask is added to the scores in place (_scaled_dot_product_attention_math in attention.cpp), unless somebody watches."""
    tracer = current()
    if tracer is None:
        yield
        return
    tracer.overwrites_scores = True
    try:
        yield
    finally:
        tracer.overwrites_scores = False


def _takes_cudnn(query: Any, value: Any) -> bool:
    return bool(query.dim() == 4 and query.shape[-1] == value.shape[-1] and query.shape[-1] % 8 == 0)


def _takes_flash(device: Device, query: Any, key: Any, value: Any, *, is_causal: bool, enable_gqa: bool) -> bool:
    if query.dim() != 4 or query.dtype not in _HALF or device.capability < (8, 0):
        return False
    if query.shape[-1] > _WIDEST_FLASH or query.shape[-1] != value.shape[-1]:
        return False
    is_offset = is_causal and query.shape[2] != key.shape[2]
    return (query.shape[1] == key.shape[1] or enable_gqa) and not is_offset


def _takes_efficient(query: Any, key: Any) -> bool:
    alignment = 8 if query.dtype in _HALF else 4
    return bool(query.dim() == 4 and query.shape[1] == key.shape[1] and query.shape[-1] % alignment == 0)


def _flash(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    width = query.shape[-1]
    missing = -width % 8
    if missing:
        query, key, value = (torch.nn.functional.pad(one, (0, missing)) for one in (query, key, value))
    factor = 1.0 / math.sqrt(width) if scale is None else scale
    made = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=factor)[0]
    return made[..., :width] if missing else made


def _efficient(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    if mask is not None:
        alignment = 8 if query.dtype in _HALF else 4
        keys = mask.shape[-1]
        if keys % alignment:
            mask = torch.nn.functional.pad(mask, (0, alignment - keys % alignment))[..., :keys]
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    is_trained = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, is_trained, dropout_p, is_causal, scale=scale
    )[0]


def _cudnn(query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    is_trained = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    bias = _additive(mask, query)
    if bias is not None and bias.dim() == 4:
        bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return aten._scaled_dot_product_cudnn_attention(
        query, key, value, bias, is_trained, dropout_p, is_causal, False, scale=scale
    )[0]


def _additive(mask: Any, query: Any) -> Any:
    """A boolean mask as what is added to the scores (convert_boolean_attn_mask)."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=query.dtype, device=query.device)
    return torch.where(mask, zero, torch.full((), float("-inf"), dtype=query.dtype, device=query.device))
