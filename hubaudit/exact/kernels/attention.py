"""Scratch memory of the attention kernels that come with torch 2.13: FlashAttention 2 and the memory-efficient one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hubaudit.exact.device import Device

_FLOAT_BYTES = 4
_MOST_SPLITS = 128
_QUERY_BLOCK = 64
_GOOD_SHARE = 0.85
_WIDEST_IN_REGISTERS = 128
_NARROW = 64
_MOST_KEY_PARTS = 200


def flash_forward(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """Partial results of a forward pass whose keys are split, where there are too few query blocks for the device (split-KV).

    Source: set_params_splitkv in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp.
    """
    if call["dropout_p"]:
        return ()
    batch, heads, queries, width = call["query"].shape
    key_heads, keys = call["key"].shape[1:3]
    is_swapped = queries == 1 and heads > key_heads and not call["is_causal"]
    rows, groups = (heads // key_heads, key_heads) if is_swapped else (queries, heads)
    key_block = 256 if width <= 64 else 128 if width <= 128 else 64
    splits = _splits(batch * groups * _up(rows, _QUERY_BLOCK), device.processors * 2, _up(keys, key_block))
    if splits == 1:
        return ()
    partial = splits * batch * heads * queries * _FLOAT_BYTES
    return (partial, partial * _padded_width(width))


def flash_backward(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """The fp32 sums of a backward pass; with grouped keys, their gradients for all query heads.

    Source: mha_bwd in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp.
    """
    query, key = call["query"], call["key"]
    batch, heads, queries, width = query.shape
    rows = _up(queries, 128) * 128
    sums = [batch * heads * rows * _FLOAT_BYTES, batch * rows * heads * _padded_width(width) * _FLOAT_BYTES]
    if key.shape[1] != heads:
        sums += [batch * key.shape[2] * heads * width * key.element_size()] * 2
    return tuple(sums)


def flash_backward_copies(call: dict[str, Any], device: Device) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Copies of the result and of its gradient where they do not lie token by token (_flash_attention_backward in attention_backward.cu)."""
    both = (call["grad_out"], call["out"])
    apart = [one for one in both if not one.transpose(1, 2).is_contiguous()]
    return tuple(one.numel() * one.element_size() for one in apart), ()


def efficient_forward(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """The fp32 sums of 16-bit results that are too wide for registers.

    Source: kNeedsOutputAccumulatorBuffer in aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h.
    """
    query, value = call["query"], call["value"]
    is_wide = max(query.shape[-1], value.shape[-1]) > _WIDEST_IN_REGISTERS
    if not is_wide or query.element_size() == _FLOAT_BYTES:
        return ()
    batch, heads, queries, _ = query.shape
    return (batch * queries * heads * value.shape[-1] * _FLOAT_BYTES,)


def efficient_backward(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """The delta, and the workspace.

    It holds sums of the queries' gradients, and for wide heads in 16 bits those of keys and values, one for each part that keys are split into.

    Source: _efficient_attention_backward in aten/src/ATen/native/transformers/cuda/attention_backward.cu, and workspace_size in
    mem_eff_attention/kernel_backward.h.
    """
    query, value = call["query"], call["value"]
    batch, heads, queries, width = query.shape
    keys, value_width = value.shape[2:]
    is_single = query.element_size() == _FLOAT_BYTES
    widest = max(width, value_width)
    is_wide = widest > _WIDEST_IN_REGISTERS
    rows = _NARROW if widest <= _NARROW or is_single else 2 * _NARROW
    columns = _NARROW if widest <= _NARROW or is_wide else 2 * _NARROW
    head_bytes = 8 if is_single and is_wide else 16
    shared = _up(queries, rows) * _up(width, columns) * (rows * columns * _FLOAT_BYTES + head_bytes)
    if is_wide and not is_single:
        parts = max(1, min(_up(keys, _NARROW), _MOST_KEY_PARTS // (batch * heads)))
        shared += parts * _NARROW * (_up(width, 128) + _up(value_width, 128)) * 128 * _FLOAT_BYTES
    delta = batch * heads * queries * _FLOAT_BYTES
    first = (query.numel() * _FLOAT_BYTES, delta, delta) if is_single else (delta,)
    return (*first, batch * heads * shared)


def _splits(blocks: int, processors: int, key_blocks: int) -> int:
    """Into how many parts the keys are split: the fewest that keep the processors nearly as busy as the best number would."""
    if blocks >= 0.8 * processors:
        return 1
    most = min(_MOST_SPLITS, processors, key_blocks)
    eligible = [n for n in range(1, most + 1) if n == 1 or _up(key_blocks, n) != _up(key_blocks, n - 1)]
    waves = {n: blocks * n / processors for n in eligible}
    busy = {n: wave / math.ceil(wave) for n, wave in waves.items()}
    best = max(busy.values(), default=0.0)
    return next((n for n in eligible if busy[n] >= _GOOD_SHARE * best), 1)


def _padded_width(width: int) -> int:
    """The head dimension that the kernel is compiled for."""
    return next((size for size in (32, 64, 96, 128, 192, 256) if width <= size), _up(width, 32) * 32)


def _up(number: int, parts: int) -> int:
    return -(-number // parts)
