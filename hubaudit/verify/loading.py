"""A model with weights on a device: a checkpoint's own, or random ones of the config's shapes. Transformers' own classes only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hubaudit.errors import CannotAuditError, HubauditError, UsageError
from hubaudit.exact.building import model_class, torch_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.verify.job import Job

_SPREAD = 0.02
_IMPLEMENTATIONS = {"sdpa": "sdpa", "eager": "eager", "flash": "flash_attention_2"}
_NOT_OURS = ("auto_map", "torch_dtype", "dtype")


def load(job: Job) -> Any:
    """The model on the job's device, quantized where that was asked for.

    Raises:
        CannotAuditError: transformers has no such model, or cannot build or load it; code of the repository is never run.
    """
    cls = model_class(job.config)
    if job.source is None and job.config.get("quantization_config"):
        raise CannotAuditError(
            "random weights of a checkpoint that is quantized already have no form that is known",
            hint="without --dummy-weights the checkpoint itself is loaded",
        )
    try:
        return _loaded(cls, job)
    except HubauditError:
        raise
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # a config or a checkpoint may be wrong in any way
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise CannotAuditError(f"transformers cannot load {cls.__name__}: {type(error).__name__}: {reason}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the machine, had no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    words = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in words or "out of memory" in words)


def _loaded(cls: Any, job: Job) -> Any:
    attention = _attention(cls, job.workload.attention)
    asked = _quantization(job)
    if job.source is not None:
        model = cls.from_pretrained(
            job.source,
            revision=job.revision,
            dtype=torch_dtype(job.dtype),
            attn_implementation=attention,
            trust_remote_code=False,
            **({} if asked is None else {"quantization_config": asked, "device_map": {"": job.device}}),
        )
        return model if asked is not None else model.to(job.device)
    config = _config(job)
    if asked is None:
        return cls._from_config(config, dtype=torch_dtype(job.dtype), attn_implementation=attention).to(job.device)
    with torch.device("meta"):
        shapes = dict(_stored(cls._from_config(config, dtype=torch_dtype(job.dtype))))
    return cls.from_pretrained(
        None,
        config=_config(job),
        state_dict={name: _random(tensor) for name, tensor in shapes.items()},
        dtype=torch_dtype(job.dtype),
        attn_implementation=attention,
        quantization_config=asked,
        device_map={"": job.device},
    )


def _stored(model: Any) -> Iterator[tuple[str, Any]]:
    """What a checkpoint of the model holds: each tensor once, under the first of its names, as tied ones are one."""
    kept = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()}
    return ((name, tensor) for name, tensor in model.state_dict().items() if name in kept)


def _config(job: Job) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    plain = {name: value for name, value in job.config.items() if name not in _NOT_OURS}
    return CONFIG_MAPPING[job.config["model_type"]].from_dict(plain)


def _attention(cls: Any, name: str) -> str | None:
    if name not in _IMPLEMENTATIONS:
        raise UsageError(f"transformers has no attention called {name}")
    return None if name == "sdpa" and not getattr(cls, "_supports_sdpa", False) else _IMPLEMENTATIONS[name]


def _random(tensor: Any) -> Any:
    if not tensor.dtype.is_floating_point:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    return torch.empty(tensor.shape, dtype=tensor.dtype).normal_(0, _SPREAD)


def _quantization(job: Job) -> Any:
    """What bitsandbytes is asked for; ``None`` for weights as they are."""
    from transformers import BitsAndBytesConfig

    work = job.workload
    skipped = {"llm_int8_skip_modules": list(work.llm_int8_skip_modules)} if work.llm_int8_skip_modules else {}
    if work.quant == "int8":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=work.llm_int8_threshold, **skipped)
    if work.quant is None:
        return None
    compute = torch_dtype(_short(work.bnb_4bit_compute_dtype or "fp32"))
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=work.quant,
        bnb_4bit_use_double_quant=work.bnb_4bit_use_double_quant,
        bnb_4bit_compute_dtype=compute,
        **skipped,
    )


def _short(name: str) -> str:
    return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(name.lower(), name)


def quantized_tensors(model: Any) -> Iterator[Any]:
    """Scales and codes beside the packed weights: of 4-bit layers their state, of 8-bit ones SCB."""
    for module in model.modules():
        state = getattr(module, "quant_state", None)
        if state is not None:
            yield from (state.absmax, state.code)
            if state.state2 is not None:
                yield from (state.offset, state.state2.absmax, state.state2.code)
        scales = getattr(getattr(module, "weight", None), "SCB", None)
        if isinstance(scales, torch.Tensor):
            yield scales
