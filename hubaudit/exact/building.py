"""A model as transformers itself builds it from a config, on the meta device: its own classes only, never a repository's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubaudit.errors import CannotAuditError
from hubaudit.facts import buffers as facts
from hubaudit.facts.config_reader import ConfigReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AUTO = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModel")
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_LEFT_OUT = ("auto_map", "torch_dtype", "dtype", "quantization_config")
_ATTENTION = {"sdpa": "sdpa", "eager": "eager"}


def torch_dtype(name: str) -> Any:
    """``bf16`` as torch's own.

    Raises:
        CannotAuditError: a type that exact mode does not load weights in.
    """
    import torch

    if name.lower() not in _DTYPES:
        raise CannotAuditError(f"exact mode loads weights as {', '.join(_DTYPES)}, not {name}")
    return getattr(torch, _DTYPES[name.lower()])


def model_class(config: Mapping[str, Any]) -> Any:
    """The class that the config names, where transformers has it; else the class that its model type stands for.

    Raises:
        CannotAuditError: transformers has neither.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        raise CannotAuditError(
            f"transformers {transformers.__version__} has no model type `{model_type}`, and exact mode never runs a repository's own code",
            hint="without --exact the estimate is by formula",
        )
    names = config.get("architectures") or ()
    for name in names if isinstance(names, (list, tuple)) else ():
        found = getattr(transformers, str(name), None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    return _by_model_type(model_type)


def _by_model_type(model_type: Any) -> Any:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for name in _AUTO:
        mapping = getattr(transformers, name)._model_mapping
        if CONFIG_MAPPING[model_type] in mapping:
            found = mapping[CONFIG_MAPPING[model_type]]
            return found[0] if isinstance(found, tuple) else found
    raise CannotAuditError(f"transformers has no model for the type `{model_type}`")


def build(config: Mapping[str, Any], dtype: str, attention: str) -> Any:
    """The model on the meta device, without a byte of weights.

    Raises:
        CannotAuditError: it cannot be built, with the reason in one line.
    """
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    cls = model_class(config)
    if attention not in _ATTENTION:
        raise CannotAuditError(
            f"exact mode knows the kernels of {' and '.join(_ATTENTION)} attention, not of {attention}"
        )
    plain = {name: value for name, value in config.items() if name not in _LEFT_OUT}
    try:
        made = CONFIG_MAPPING[config["model_type"]].from_dict(plain)
        with torch.device("meta"):
            model = cls._from_config(
                made, dtype=torch_dtype(dtype), attn_implementation=_implementation(cls, attention)
            )
        return model.to("meta")  # the few parameters that are made of values lie on the host until then
    except CannotAuditError:
        raise
    except Exception as error:  # a config may be wrong in any way
        reason = " ".join(str(error).split())[:200]
        raise CannotAuditError(
            f"transformers cannot build {cls.__name__} from this config: {type(error).__name__}: {reason}"
        ) from error


def _implementation(cls: Any, attention: str) -> str | None:
    """What was asked for, or the class's own way where it has no such kernel."""
    return None if attention == "sdpa" and not getattr(cls, "_supports_sdpa", False) else attention


def tensors_in_order(model: Any) -> Iterator[tuple[str, Any]]:
    """Parameters and buffers in the order in which ``model.to(device)`` moves them, shared ones once, with their names."""
    seen: set[int] = set()

    def walk(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, child in module.named_children():
            yield from walk(child, f"{prefix}{name}.")
        for kept in (module._parameters, module._buffers):
            for name, tensor in kept.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield prefix + name, tensor

    return walk(model, "")


def made_buffers(model: Any, config: Mapping[str, Any]) -> Iterator[Any]:
    """Those of the model's buffers that no file holds and the estimate by formula counts."""
    known = facts.made_buffers(ConfigReader(config), type(model).__name__)
    return (tensor for name, tensor in model.named_buffers() if facts.is_one_of(name, known))
