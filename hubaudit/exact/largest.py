"""What finding the largest of long rows takes on CUDA, as beam search does in every step (TensorTopK.cu of torch 2.13)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from hubaudit.exact.device import Device

_THREADS = 256
#: Of a multiprocessor, by its 65,536 registers, of which each thread takes 40.
_BLOCKS = 6
_MOST_EACH, _LEAST_EACH = 64, 4
#: What cub's scan by key takes. From many thousands of blocks on a little more, which ends in the same 512 bytes.
_SCAN_BYTES = 1279
#: Up to so many rows, they are long from so many values on.
_WIDTHS = ((20, 20000), (40, 10000), (80, 8000), (199, 5000), (799, 3000), (4000, 800), (math.inf, 400))


def scratch() -> dict[Any, Any]:
    """A rule for :data:`hubaudit.exact.kernels.tables.SCRATCH`."""
    return {torch.ops.aten.topk.default: _largest}


def _largest(call: dict[str, Any], device: Device) -> tuple[int, ...]:
    """Long rows are gone through by many blocks, which count digits of 8 bits (mbtopk::launch); others by one each, in no memory."""
    values = call["self"]
    width = values.shape[call["dim"]] if values.dim() else 1
    rows = values.numel() // max(1, width)
    if width < next(least for most, least in _WIDTHS if rows <= most):
        return ()
    here = device.processors * _BLOCKS * _THREADS
    each = _THREADS * max(_LEAST_EACH, min(_MOST_EACH, -(-values.numel() // here)))
    blocks = rows * -(-width // each)
    digits = 2 * rows * (8 if values.element_size() == 8 else 4)
    copied = () if values.is_contiguous() else (values.numel() * values.element_size(),)
    counts = (digits, blocks * 512, rows * 1024, 4 * blocks, 4 * blocks)
    return (*copied, rows * values.element_size(), 8 * rows, *counts, _SCAN_BYTES)
