"""What the survey of exact mode runs: every causal, seq2seq and masked-LM type of transformers, one forward pass and one training step.

The same code runs on the stub device (recorded) and on traced tensors (compared), so that the two differ in nothing but the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH, TOKENS = 2, 256
_DEPTHS = (2, 3, 4, 5, 6, 8, 12)
_DEPTH_NAMES = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)
_KIND_NAMES = ("layer_types", "mlp_layer_types", "layers_block_type", "hybrid_override_pattern")
_CLASSES = {
    "causal": "AutoModelForCausalLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "masked": "AutoModelForMaskedLM",
}
_MAPPINGS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
}


class Case(NamedTuple):
    """One run: a model type of a kind, and what is done with it."""

    model_type: str
    kind: str
    task: str

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.model_type} {self.kind} {self.task}"


def cases() -> Iterator[Case]:
    """Every case, in transformers' own order."""
    from transformers.models.auto import modeling_auto

    for kind, mapping in _MAPPINGS.items():
        for model_type in getattr(modeling_auto, mapping):
            for task in ("infer", "train"):
                yield Case(model_type, kind, task)


def model(case: Case) -> Any:
    """The model on the meta device: its class's own defaults, but few layers, in bfloat16."""
    import torch
    import transformers

    with torch.device("meta"):
        return getattr(transformers, _CLASSES[case.kind]).from_config(_config(case.model_type), dtype=torch.bfloat16)


def _config(model_type: str) -> Any:
    """The class's own defaults, with the fewest layers, from 2 on, among which there is one of every kind."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    cls = CONFIG_MAPPING[model_type]
    whole = cls()
    found = next((one for depth in _DEPTHS if (one := _shallow(cls, whole, depth)) is not None), whole)
    for name in ("pad_token_id", "decoder_start_token_id"):
        if getattr(found, name, None) is None:
            _assign(found, name, 0)
    return found


def _shallow(cls: Any, whole: Any, depth: int) -> Any:
    """The config with so many layers; ``None`` where it allows none such or a kind of layer would be gone."""
    text = _text(whole)
    fewer = {name: min(depth, value) for name in _DEPTH_NAMES if isinstance(value := getattr(text, name, None), int)}
    section = next((name for name in getattr(whole, "sub_configs", ()) if getattr(whole, name, None) is text), None)
    try:
        made = cls(**(fewer if section is None else {section: fewer}))
        is_whole = _kinds(_text(made)) == _kinds(text)
    except Exception:  # noqa: BLE001 - a config class may refuse in any way
        return None
    return made if is_whole else None


def _text(config: Any) -> Any:
    try:
        return config.get_text_config(decoder=True)
    except (AttributeError, ValueError):  # it has none, or several
        return config


def _kinds(text: Any) -> list[set[str]]:
    return [set(getattr(text, name, None) or ()) for name in _KIND_NAMES]


def _assign(config: Any, name: str, value: int) -> None:
    try:
        setattr(config, name, value)
    except Exception:  # noqa: BLE001 - a config that computes the value itself keeps it
        return


def run(built: Any, case: Case, device: str, mark: Callable[[str], None]) -> None:
    """The case itself, on tensors of ``device``; ``mark`` is called after each stretch."""
    import torch

    torch.manual_seed(0)  # whole layers are dropped by chance in some types
    ids = torch.zeros(BATCH, TOKENS, dtype=torch.long, device=device)
    if case.task == "train":
        _train(built.train(), ids, mark)
        return
    extra = {"labels": ids} if case.kind == "seq2seq" else {}
    extra |= {} if case.kind == "masked" else {"use_cache": True}
    built.eval()
    with torch.no_grad():
        outputs = built(input_ids=ids, **extra)
        mark("forward")
    del outputs


def _train(built: Any, ids: Any, mark: Callable[[str], None]) -> None:
    import torch

    trainable = [one for one in built.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trainable, fused=True)
    outputs = built(input_ids=ids, labels=ids)
    mark("forward")
    loss = outputs.loss
    del outputs
    loss.backward()
    mark("backward")
    optimizer.step()
    mark("step")


def materialize(built: Any, device: str) -> Any:
    """The model's parameters and then its buffers, one by one, on a device, shared ones once."""
    import torch

    seen: dict[int, Any] = {}
    for module in built.modules():
        for name, old in list(module._parameters.items()):
            if old is not None:
                if id(old) not in seen:
                    seen[id(old)] = torch.nn.Parameter(torch.empty_like(old, device=device), old.requires_grad)
                module._parameters[name] = seen[id(old)]
    for module in built.modules():
        for name, old in list(module._buffers.items()):
            if old is not None:
                if id(old) not in seen:
                    seen[id(old)] = torch.empty_like(old, device=device)
                module._buffers[name] = seen[id(old)]
    return built
