"""Bitsandbytes' own modules on the meta device, with every tensor that a real one holds on the GPU, and none of its values."""

from __future__ import annotations

import inspect
import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from hubaudit.exact import eight_bit
from hubaudit.exact.building import torch_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.exact.device import Device
    from hubaudit.exact.plan import Plan
    from hubaudit.exact.tracer import Tracer

_BLOCK = 64
_NESTED_BLOCK = 256
_CUSTOM_KERNEL_ROWS = 1536


def quantize(model: Any, plan: Plan) -> None:
    """Replace the linear layers that transformers would, and give each the tensors of a quantized weight."""
    import bitsandbytes
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import HfQuantizer

    is_8bit = plan.quant == "int8"
    asked = BitsAndBytesConfig(
        load_in_8bit=is_8bit,
        load_in_4bit=not is_8bit,
        bnb_4bit_quant_type="nf4" if is_8bit else plan.quant,
        bnb_4bit_use_double_quant=plan.double_quant,
        bnb_4bit_compute_dtype=torch_dtype(plan.compute_dtype),
        llm_int8_threshold=plan.outlier_threshold,
        llm_int8_skip_modules=list(plan.skipped_modules) or None,
    )
    kept = HfQuantizer.get_modules_to_not_convert(model, asked.llm_int8_skip_modules, model._keep_in_fp32_modules)
    replace_with_bnb_linear(model, kept, asked)
    for module in model.modules():
        if not isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)):
            continue
        if module.bias is not None:  # the new module's own is float32, until a checkpoint's is loaded
            module.bias.data = module.bias.data.to(torch_dtype(plan.dtype))
        if is_8bit:
            eight_bit.fill(module)
        else:
            _fill(module, plan)
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = not is_8bit, is_8bit
    model.quantization_method = "bitsandbytes"


def _fill(module: Any, plan: Plan) -> None:
    import torch
    from bitsandbytes.functional import QuantState
    from bitsandbytes.nn import Params4bit

    rows, columns = module.out_features, module.in_features
    blocks = math.ceil(rows * columns / _BLOCK)
    packed = torch.empty(((rows * columns + 1) // 2, 1), dtype=torch.uint8, device="meta")
    state: dict[str, Any] = {
        "absmax": torch.empty(blocks, dtype=torch.uint8 if plan.double_quant else torch.float32, device="meta"),
        "shape": torch.Size((rows, columns)),
        "dtype": torch_dtype(plan.dtype),
        "blocksize": _BLOCK,
        "code": torch.empty(16, dtype=torch.float32, device="meta"),
        "quant_type": plan.quant,
    }
    if plan.double_quant:
        nested = QuantState(
            absmax=torch.empty(math.ceil(blocks / _NESTED_BLOCK), dtype=torch.float32, device="meta"),
            blocksize=_NESTED_BLOCK,
            code=torch.empty(256, dtype=torch.float32, device="meta"),
            dtype=torch.float32,
        )
        state |= {"offset": torch.empty((), dtype=torch.float32, device="meta"), "state2": nested}
    made = QuantState(**state)
    module._parameters["weight"] = Params4bit(
        packed,
        requires_grad=False,
        quant_state=made,
        quant_type=plan.quant,
        compress_statistics=plan.double_quant,
        bnb_quantized=True,
        module=module,
    )
    module.quant_state = made


def state_tensors(model: Any) -> Iterator[Any]:
    """The scales and codes beside the packed weights."""
    for module in model.modules():
        if type(module).__name__ == "Linear8bitLt":
            yield from eight_bit.scales(module)
        state = getattr(module, "quant_state", None)
        if state is None:
            continue
        yield from (state.absmax, state.code)
        if state.state2 is not None:
            yield from (state.offset, state.state2.absmax, state.state2.code)


def overrides(device: Device | None, *, always_unpacks: bool = False) -> dict[Any, Any]:
    """Bitsandbytes' products as its CUDA backend does them: by one kernel for few rows, else on a weight unpacked for the moment.

    They hold for tensors with data too, of the CPU, where bitsandbytes unpacks inside an operator. ``always_unpacks``: versions before 0.50
    have the one kernel for a single row only.
    """
    import bitsandbytes
    import torch

    def gemm(
        tracer: Tracer,
        a: Any,
        b: Any,
        shape: Any,
        absmax: Any,
        blocksize: int,
        quant_type: str,
        *rest: Any,
        **named: Any,
    ) -> Any:
        names = ("bias", "absmax_8bit", "absmax_code", "absmax_offset")
        given = dict(zip(names, rest, strict=False)) | named
        rows, width = a.numel() // a.shape[-1], a.shape[-1]
        if not always_unpacks and width % blocksize == 0 and _uses_kernel(device, a.dtype, rows, shape[0], width):
            return NotImplemented
        operators = torch.ops.bitsandbytes
        with tracer:
            nested = given.get("absmax_8bit")
            if nested is not None:
                absmax = operators.dequantize_blockwise.default(
                    nested, absmax, given["absmax_code"], _NESTED_BLOCK, torch.float32
                )
                absmax = absmax + given["absmax_offset"]  # the scales live as long as the unpacked weight
            weight = operators.dequantize_4bit.default(b, absmax, blocksize, quant_type, shape, a.dtype)
            product = torch.nn.functional.linear(a, weight, given.get("bias"))
            del weight, absmax
            return product

    operator = getattr(torch.ops.bitsandbytes, "gemm_4bit", None)
    four_bit = {} if operator is None or not bitsandbytes else {operator.default: gemm}
    return four_bit | eight_bit.overrides()


def _uses_kernel(device: Device | None, dtype: Any, rows: int, columns: int, width: int) -> bool:
    """Bitsandbytes' own choice, asked of its function where it can be asked without a GPU."""
    if rows > _CUSTOM_KERNEL_ROWS or device is None:
        return False
    from unittest.mock import patch

    try:
        with _raw_stream():
            from bitsandbytes.backends.cuda import ops
    except (ImportError, RuntimeError, AttributeError, OSError):
        return rows == 1
    properties = (device.processors, *device.capability)
    choice = inspect.unwrap(ops._gemm_4bit_use_custom_cuda)  # it remembers its answers for the one GPU of a process
    with patch.object(ops, "_gpu_dispatch_props", lambda index: properties):
        return bool(choice(0, dtype, rows, columns, width))


def _raw_stream() -> AbstractContextManager[object]:
    """What bitsandbytes' CUDA module takes from torch when it is imported, and never calls here; only CUDA builds have it."""
    from unittest.mock import patch

    import torch

    name = "_cuda_getCurrentRawStream"
    return nullcontext() if hasattr(torch._C, name) else patch.object(torch._C, name, None, create=True)
