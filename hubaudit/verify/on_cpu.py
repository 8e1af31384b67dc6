"""Bitsandbytes on the CPU by the steps of its CUDA backend, with data: what CUDA unpacks is then a tensor that is counted."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hubaudit.exact import quantized
from hubaudit.exact.device import device_of_capability
from hubaudit.exact.plan import DEFAULT_CAPABILITY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.exact.tracer import Tracer


@contextmanager
def steps_of_cuda(tracer: Tracer) -> Iterator[None]:
    """While this lasts, layers in 8 and 4 bits do on the CPU what they do on CUDA.

    Bitsandbytes 0.50.2 has ways for the CPU alone: it trains 8-bit layers by a product of their own (autograd/_functions.py, MatMul8bitFp),
    packs 4-bit weights anew for AVX-512 (nn/modules.py), and unpacks inside an operator. Which products unpack is asked as exact mode asks it.
    """
    functions: Any = import_module("bitsandbytes.autograd._functions")
    modules: Any = import_module("bitsandbytes.nn.modules")
    before = dict(tracer.overrides)
    tracer.overrides.update(quantized.overrides(device_of_capability(DEFAULT_CAPABILITY)))
    try:
        with (
            patch.object(functions, "MatMul8bitFp", functions.MatMul8bitLt),
            patch.object(modules, "has_avx512bf16", lambda: False),
        ):
            yield
    finally:
        tracer.overrides = before
