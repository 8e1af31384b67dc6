"""`device_map="auto"` without a GPU: transformers' own placement of a model on the meta device, built from its config."""

from __future__ import annotations

import logging
import re
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hubaudit.data.dtypes import dtype_named
from hubaudit.errors import CannotAuditError, UsageError
from hubaudit.report.placement import Placed, Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hubaudit.types import Config

_NUMBER = re.compile(r"\.(\d+)(?:\.|$)")
_TORCH = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
#: Host memory beyond what any model takes, where no limit was given.
_NO_LIMIT = 2**60
_ALONE_PERCENT = 90
_HOST_PERCENT = 90


def place(
    config: Config, *, architecture: str | None, dtype: str, gpu_bytes: Sequence[int], cpu_bytes: int | None = None
) -> Placement:
    """Where ``from_pretrained(device_map="auto")`` of transformers 5.23 puts each module.

    Args:
        config: the repository's ``config.json``. No code of the repository is run.
        architecture: the class that the config names; the usual causal language model of the type where it names none.
        dtype: what the weights are loaded in (``"bf16"``).
        gpu_bytes: what is free on each accelerator once a process has its context there.
        cpu_bytes: free memory of the host; as much as is needed where it is ``None``.

    Raises:
        UsageError: the libraries are not installed.
        CannotAuditError: transformers has no class for this config, or the weights are quantized.
    """
    torch, transformers, accelerate = _libraries()
    if config.get("quantization_config"):
        raise CannotAuditError("where the modules of a quantized checkpoint go is not known without its quantizer")
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # says of every device that it is not there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _on_meta(torch, transformers, config, architecture, dtype)
        limits: dict[int | str, int] = dict(enumerate(_usable(gpu_bytes)))
        limits["cpu"] = _NO_LIMIT if cpu_bytes is None else cpu_bytes * _HOST_PERCENT // 100
        chosen = accelerate._get_device_map(model, "auto", dict(limits), None)
    return Placement(
        architecture=type(model).__name__,
        dtype=dtype,
        rows=tuple(_rows(model, chosen, limits)),
        assumptions=tuple(_said(transformers, len(gpu_bytes), cpu_bytes)),
    )


def _libraries() -> tuple[Any, Any, Any]:
    try:
        torch, transformers = import_module("torch"), import_module("transformers")
        import_module("accelerate")
        return torch, transformers, import_module("transformers.integrations.accelerate")
    except ImportError as error:
        raise UsageError(
            f"placing modules runs the libraries' own code, and {error.name} is not installed",
            hint="pip install 'hubaudit[exact]'; or --tp and --pp, which need nothing",
        ) from None


def _on_meta(torch: Any, transformers: Any, config: Config, architecture: str | None, dtype: str) -> Any:
    """The model with shapes and no memory. Only classes that transformers itself has are built."""
    transformers.logging.set_verbosity_error()
    known = transformers.CONFIG_MAPPING
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in known:
        raise CannotAuditError(f"transformers {transformers.__version__} has no model type {model_type!a}")
    try:
        made = known[model_type].from_dict(dict(config))
        named = getattr(transformers, architecture or "", None)
        is_model = isinstance(named, type) and issubclass(named, transformers.PreTrainedModel)
        with torch.device("meta"):
            wanted = getattr(torch, _TORCH[dtype_named(dtype) or "BF16"])
            if is_model:
                return named._from_config(made, dtype=wanted)  # type: ignore[union-attr]
            return transformers.AutoModelForCausalLM.from_config(made, dtype=wanted)
    except Exception as error:
        raise CannotAuditError(f"transformers cannot build the model: {type(error).__name__}: {error}") from error


def _usable(gpu_bytes: Sequence[int]) -> list[int]:
    """A single accelerator is filled to nine tenths (get_balanced_memory, transformers 5.23.0)."""
    if len(gpu_bytes) == 1:
        return [gpu_bytes[0] * _ALONE_PERCENT // 100]
    return list(gpu_bytes)


def _rows(model: Any, chosen: Mapping[str, int | str], limits: Mapping[int | str, int]) -> Iterator[Placed]:
    """Devices in their order, each with the layers and modules that it got, and the bytes of their tensors."""
    sizes = dict.fromkeys([*limits, "disk"], 0)
    for name, size in _tensors(model):
        sizes[_device_of(name, chosen)] += size
    layers, others = _modules(model, chosen)
    for device, size in sizes.items():
        if size or device in layers or device in others:
            limit = limits.get(device)
            yield Placed(
                device=str(device),
                layers=tuple(layers.get(device, ())),
                modules=tuple(others.get(device, ())),
                bytes=size,
                limit_bytes=None if limit in (None, _NO_LIMIT) else limit,
            )


def _tensors(model: Any) -> Iterator[tuple[str, int]]:
    """Parameters and buffers, a tied one once, as transformers counts them (compute_module_sizes)."""
    tied = getattr(model, "all_tied_weights_keys", {}).keys()
    for tensors in (model.named_parameters(), model.named_buffers()):
        for name, tensor in tensors:
            if name not in tied:
                yield name, tensor.numel() * tensor.element_size()


def _device_of(name: str, chosen: Mapping[str, int | str]) -> int | str:
    """The device of the closest module above."""
    words = name.split(".")
    for end in range(len(words), -1, -1):
        above = ".".join(words[:end])
        if above in chosen:
            return chosen[above]
    raise CannotAuditError(f"no device was chosen for {name}")


def _modules(
    model: Any, chosen: Mapping[str, int | str]
) -> tuple[dict[int | str, list[int]], dict[int | str, list[str]]]:
    """Numbers of the layers that are never cut, and the names of all other modules that hold tensors, by device."""
    whole = set(model._no_split_modules or ())
    layers: dict[int | str, list[int]] = {}
    others: dict[int | str, list[str]] = {}
    inside: list[str] = []
    for name, module in model.named_modules():
        numbered = _NUMBER.search(f".{name}")
        if type(module).__name__ in whole and numbered and not _within(name, inside):
            inside.append(name)
            layers.setdefault(_device_of(name, chosen), []).append(int(numbered[1]))
    for name, module in model.named_modules():
        if _within(name, inside) or not any(True for _ in module.parameters(recurse=False)):
            continue
        others.setdefault(_device_of(name, chosen), []).append(name.rpartition(".")[2] or name)
    return layers, {device: list(_counted(names)) for device, names in others.items()}


def _within(name: str, above: Iterable[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in above)


def _counted(names: list[str]) -> Iterator[str]:
    """Each name once, with how many modules have it."""
    for name in dict.fromkeys(names):
        count = names.count(name)
        yield name if count == 1 else f"{name} × {count}"


def _said(transformers: Any, gpus: int, cpu_bytes: int | None) -> Iterator[str]:
    yield f"as from_pretrained(device_map='auto') of transformers {transformers.__version__} places it, which divides weights only: no cache, no activations"
    if gpus == 1:
        yield f"a single accelerator is filled to {_ALONE_PERCENT} %, as transformers does"
    elif gpus > 1:
        yield "several accelerators are filled evenly, as device_map='auto' balances them"
    if cpu_bytes is None:
        yield "as much host memory as it takes; --cpu-memory says how much there is, and the rest goes to disk"
