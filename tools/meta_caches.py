"""Build any model of the installed transformers on the meta device, run it with its cache, and list the tensors that it keeps.

This is the oracle of the layer plans: real modeling code on tensors without data, so that a 70-billion-parameter model runs in seconds.
The cache is the one that ``generate`` would make. What is counted is each tensor's logical size (``numel × element_size``) after a
prompt and a few single-token steps, because after the prompt alone a sliding layer still holds a view of the whole concatenation;
tensors that appear twice count once, and scalars of bookkeeping (lengths, window sizes) do not count.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import json
import logging
import math
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json: TypeAlias = dict[str, Any]
Kept: TypeAlias = list[tuple[str, tuple[int, ...], str]]

MAPPINGS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SPEECH_SEQ_2_SEQ")
ALSO = (("musicgen", "MusicgenForConditionalGeneration"),)  # generates sound, but with a text model's caches
CACHES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
DEPTHS = frozenset(
    [
        "num_hidden_layers",
        "n_layer",
        "num_layers",
        "n_layers",
        "layers",
        "encoder_layers",
        "decoder_layers",
        "depth",
        "num_decoder_layers",
        "num_encoder_layers",
        "num_blocks",
        "encoder_num_hidden_layers",
        "decoder_num_hidden_layers",
        "speech_encoder_layers",
        "adaptor_layers",
        "num_adapter_layers",
        "t2u_encoder_layers",
        "t2u_decoder_layers",
        "num_layers_per_stack",
    ]
)
LISTS = frozenset(["layer_types", "layers_block_type", "hybrid_override_pattern"])
WINDOWS = frozenset(
    [
        "sliding_window",
        "sliding_window_size",
        "attention_chunk_size",
        "local_attention",
        "attention_window_size",
        "attention_window",
    ]
)
SMALL_WINDOW = 16


class Tools:
    """Torch and transformers, imported once and made quiet."""

    def __init__(self) -> None:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        self.torch: Any = importlib.import_module("torch")
        self.transformers: Any = importlib.import_module("transformers")
        self.transformers.logging.set_verbosity_error()
        self.auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
        self.configs: Any = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
        self.dispatch: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
        self.outputs: Any = importlib.import_module("transformers.modeling_outputs")


_TOOLS: list[Tools] = []


def tools() -> Tools:
    """The one ``Tools``."""
    if not _TOOLS:
        _TOOLS.append(Tools())
    return _TOOLS[0]


# --- configurations ---------------------------------------------------------------------------------------------------------


def model_classes() -> list[tuple[str, str]]:
    """Every model type that generates text, with each of its generating classes: ``("llama", "LlamaForCausalLM")``."""
    found: OrderedDict[tuple[str, str], None] = OrderedDict()
    for mapping in MAPPINGS:
        for model_type, name in getattr(tools().auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items():
            found[(model_type, name)] = None
    return sorted(found | dict.fromkeys(ALSO))


def config_of(config: Json) -> Any:
    """The configuration object that transformers builds from a config.json."""
    config_class = tools().configs[config["model_type"]]
    return config_class.from_dict(_decoded(copy.deepcopy(config)))


def _decoded(value: Any) -> Any:
    """Infinities as transformers reads them: it writes ``{"__float__": "Infinity"}``."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"].lower().replace("infinity", "inf"))
        return {key: _decoded(item) for key, item in value.items()}
    return [_decoded(item) for item in value] if isinstance(value, list) else value


def as_json(config: Any, *, full: bool = False) -> Json:
    """The config.json that transformers would write; ``full`` writes the class's defaults too."""
    found: Json = json.loads(config.to_json_string(use_diff=not full))
    return found


def sections(config: Json) -> Iterator[Json]:
    """The configuration and every object inside it."""
    yield config
    for value in config.values():
        if isinstance(value, dict):
            yield from sections(value)


def layer_kinds(config: Any) -> set[str]:
    """The kinds of layer that a configuration object names."""
    types = getattr(config.get_text_config(decoder=True), "layer_types", None)
    return set(types) if isinstance(types, list | tuple) else set()


def small(config: Json, layers: int, *, window: int | None = SMALL_WINDOW) -> Json:
    """``config`` with at most ``layers`` layers in each of its parts, and every window at most ``window`` tokens."""
    found = copy.deepcopy(config)
    for section in sections(found):
        section.pop("per_layer_config", None)  # by absolute index: the class makes it again
        depths = {section[key] for key in DEPTHS & section.keys() if isinstance(section[key], int)}
        for key, value in list(section.items()):
            if isinstance(value, list) and len(value) > 1 and len(value) in depths:
                del section[key]
            elif key in DEPTHS and isinstance(value, int):
                section[key] = min(value, layers)
            elif window is not None and key in WINDOWS and isinstance(value, int):
                section[key] = min(value, window)
    return found


def small_default(model_type: str, *, window: int | None = SMALL_WINDOW) -> Json:
    """The class's default configuration, made as shallow as it can be with every kind of layer still in it."""
    whole = tools().configs[model_type]()
    default = as_json(whole, full=True) | {"model_type": model_type}
    wanted = layer_kinds(whole)
    for layers in (4, 6, 8, 12, 16, 24, 48, 96):
        try:
            tried = small(default, layers, window=window)
            built = config_of(tried)
        except Exception:  # noqa: BLE001, S112 -- a class refuses a depth in its own way; the next one may do
            continue
        if layer_kinds(built) == wanted:
            return as_json(built, full=True) | {"model_type": model_type}
    return default


def shallow(config: Json, layers: int) -> Json:
    """A published configuration cut to its first ``layers`` layers, lists of something for each layer with them."""
    found = copy.deepcopy(config)
    for section in sections(found):
        depths = {section[key] for key in DEPTHS & section.keys() if isinstance(section[key], int)}
        depths |= {len(section[key]) for key in LISTS & section.keys() if section[key]}
        if isinstance(section.get("num_kv_shared_layers"), int) and depths:
            section["num_kv_shared_layers"] = section["num_kv_shared_layers"] * min(layers, *depths) // max(depths)
        for key, value in list(section.items()):
            if _one_a_layer(key, value) and len(value) in depths and len(value) > layers:
                section[key] = value[:layers]
            elif key in DEPTHS and isinstance(value, int):
                section[key] = min(value, layers)
    return found


def _one_a_layer(key: str, value: Any) -> bool:
    """Whether a value can hold one item for each layer; strings do where they are a pattern of letters."""
    return isinstance(value, list) or (isinstance(value, str) and "pattern" in key)


# --- running -----------------------------------------------------------------------------------------------------------------


def answering() -> Any:
    """A dispatch mode that answers what the meta device cannot: a scalar read from a tensor, the number of true elements."""
    torch = tools().torch
    aten = torch.ops.aten

    class Answers(tools().dispatch):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            packet = func.overloadpacket
            first = args[0] if args and isinstance(args[0], torch.Tensor) else None
            if first is not None and first.device.type == "meta":
                if packet is aten._local_scalar_dense:
                    return _scalar(first.dtype)
                if packet is aten.nonzero:
                    return torch.empty((first.numel() // 2, first.dim()), dtype=torch.long, device="meta")
                if packet is aten.index and any(_is_mask(index) for index in args[1]):
                    return func(first, [_chosen(index) for index in args[1]])
                if packet is aten.masked_select:
                    return torch.empty((first.numel() // 2,), dtype=first.dtype, device="meta")
            return func(*args, **(kwargs or {}))

    return Answers()


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (tools().torch.bool, tools().torch.uint8)


def _chosen(index: Any) -> Any:
    """Half of a one-dimensional mask's elements, as positions."""
    if not _is_mask(index):
        return index
    return tools().torch.empty((max(1, index.numel() // 2),), dtype=tools().torch.long, device="meta")


def _scalar(dtype: Any) -> bool | float | int:
    if dtype == tools().torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 1


def build(config: Any, class_name: str, *, dtype: str = "bfloat16", device: str = "meta") -> Any:
    """The model, in evaluation mode; parameters that ``from_pretrained`` keeps in float32 are float32."""
    torch = tools().torch
    model_class = getattr(tools().transformers, class_name)
    if (
        model_class.config_class in type(config).sub_configs.values()
    ):  # as AutoModel does for a text model of a wrapping type
        config = next(
            getattr(config, name) for name, part in type(config).sub_configs.items() if part is model_class.config_class
        )
    with torch.device(device):
        model = model_class._from_config(config, dtype=getattr(torch, dtype))
    plan = model._get_dtype_plan(getattr(torch, dtype)) if hasattr(model, "_get_dtype_plan") else {}
    for name, parameter in model.named_parameters():
        wider = next((wide for part, wide in plan.items() if _names(part, name)), None)
        if wider is not None and parameter.is_floating_point():
            parameter.data = parameter.data.to(wider)
    return model.eval()


def _names(part: str, parameter: str) -> bool:
    return f".{part}." in f".{parameter}."


class Run:
    """One model run with its cache: a prompt, then single-token steps."""

    def __init__(
        self,
        model: Any,
        *,
        inputs: Callable[[Run], Json] | None = None,
        first_inputs: Callable[[Run], Json] | None = None,
        tokens: Callable[[Run, int], Any] | None = None,
        whole: bool = False,
    ) -> None:
        self.model = model
        self.inputs = inputs
        self.first_inputs = first_inputs
        self.tokens = tokens or _token_ids
        self.whole = whole
        self.torch = tools().torch
        self.parameters = inspect.signature(model.forward).parameters
        devices = {parameter.device for parameter in model.parameters()}  # weight normalization leaves some on the CPU
        self.device = next((device for device in devices if device.type == "meta"), next(iter(devices)))
        self.dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        self.asks = False  # whether its code asks for what tensors without data do not have
        self.batch = 0
        self.encoder_tokens = 0
        self.length = 0

    def kept(self, *, batch: int, prompt: int, steps: int, encoder_tokens: int = 0) -> Kept:
        """The tensors that the model keeps after ``prompt`` tokens at once and ``steps`` single tokens."""
        self.batch, self.encoder_tokens = batch, encoder_tokens
        if not self.asks:
            try:
                return self._kept(prompt, steps, contextlib.nullcontext())
            except (
                NotImplementedError,
                RuntimeError,
                KeyError,
            ):  # most code never asks; the dispatch mode takes its time
                self.asks = True
        return self._kept(prompt, steps, answering())

    def _kept(self, prompt: int, steps: int, mode: Any) -> Kept:
        token_name = "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"
        with mode, self.torch.no_grad():
            cache = self._cache()
            for step in range(steps + 1):
                self.length = prompt + step if self.whole or step == 0 else 1
                given = self._given(first=step == 0)
                output = self.model(**given, **cache, **{token_name: self.tokens(self, self.length)}, use_cache=True)
                cache = self._returned(output) or cache
        return list(_tensors(cache, set())) + list(_states_in_modules(self.model))

    def ones(self, *shape: int) -> Any:
        """A tensor of the model's dtype for one of its inputs."""
        return self.torch.ones(*shape, dtype=self.dtype, device=self.device)

    def _given(self, *, first: bool) -> Json:
        given: Json = {}
        if self.model.config.is_encoder_decoder:
            hidden = self.ones(self.batch, self.encoder_tokens, encoder_width(self.model.config))
            given["encoder_outputs"] = tools().outputs.BaseModelOutput(last_hidden_state=hidden)
            for name in ("attention_mask", "router_logits"):  # what some encoders also return
                given["encoder_outputs"][name] = None
        for inputs in (self.inputs, self.first_inputs if first else None):
            given |= inputs(self) if inputs is not None else {}
        return given

    def _cache(self) -> Json:
        """What ``generate`` would pass; nothing where the model makes its own."""
        model = self.model
        if not hasattr(model, "_prepare_cache_for_generation"):
            return {}
        found: Json = {}
        generation = importlib.import_module("transformers.generation")
        mode = importlib.import_module("transformers.generation.configuration_utils").GenerationMode.GREEDY_SEARCH
        prepare = model._prepare_cache_for_generation
        if "generation_mode" not in inspect.signature(prepare).parameters:
            return {}
        prepare(generation.GenerationConfig(), found, mode, self.batch, 4096)
        return {key: value for key, value in found.items() if key in self.parameters}

    def _returned(self, output: Any) -> Json:
        return {name: getattr(output, name) for name in CACHES if getattr(output, name, None) is not None}


def _token_ids(run: Run, length: int) -> Any:
    return run.torch.ones(run.batch, length, dtype=run.torch.long, device=run.device)


def encoder_width(config: Any) -> int:
    """Hidden size of what the encoder hands to the decoder."""
    encoder = getattr(config, "encoder", None)
    names = ("encoder_config", "encoder", "vision_config", "text_config")
    for holder in (getattr(encoder, "text_config", None), *(getattr(config, name, None) for name in names), config):
        for key in ("d_model", "hidden_size"):
            if isinstance(getattr(holder, key, None), int):
                return int(getattr(holder, key))
    return int(config.get_text_config(encoder=True).hidden_size)


def _tensors(held: Any, seen: set[int], path: str = "") -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Every distinct tensor that can be reached from a cache, scalars left out."""
    torch, transformers = tools().torch, tools().transformers
    if id(held) in seen or isinstance(held, transformers.PreTrainedConfig | type):
        return
    if isinstance(held, torch.Tensor):
        seen.add(id(held))
        if held.dim() > 0 and held.numel() > 1:
            yield path, tuple(held.shape), str(held.dtype).removeprefix("torch.")
        return
    if isinstance(held, dict | list | tuple) or hasattr(held, "__dict__"):
        seen.add(id(held))
        for name, value in _members(held):
            yield from _tensors(value, seen, f"{path}{name}")


def _members(held: Any) -> list[tuple[str, Any]]:
    if isinstance(held, list | tuple):
        return [(f"[{index}]", value) for index, value in enumerate(held)]
    if isinstance(held, dict):
        return [(f".{key}", value) for key, value in held.items()]
    return [(f".{key}", value) for key, value in vars(held).items()]


def _states_in_modules(model: Any) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """States that a model keeps as plain attributes of its modules instead of in a cache (recurrent_gemma)."""
    for name, module in model.named_modules():
        for key in ("conv1d_state", "recurrent_states"):
            value = vars(module).get(key)
            if isinstance(value, tools().torch.Tensor):
                yield f"{name}.{key}", tuple(value.shape), str(value.dtype).removeprefix("torch.")


def total_bytes(kept: Kept) -> int:
    """Logical bytes of the tensors."""
    return sum(math.prod(shape) * getattr(tools().torch, dtype).itemsize for _, shape, dtype in kept)
