"""What the survey of exact mode runs: every causal, seq2seq and masked-LM type of transformers, one forward pass and one training step.

The same code runs on the stub device (recorded) and on traced tensors (compared), so that the two differ in nothing but the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH, TOKENS, LAYERS = 2, 256, 4
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
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type]()
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    if not getattr(text, "layer_types", None):
        for name in ("num_hidden_layers", "n_layer", "n_layers"):
            if isinstance(getattr(text, name, None), int) and getattr(text, name) > LAYERS:
                _assign(text, name, LAYERS)
    for name in ("pad_token_id", "decoder_start_token_id"):
        if getattr(config, name, None) is None:
            _assign(config, name, 0)
    return config


def _assign(config: Any, name: str, value: int) -> None:
    try:
        setattr(config, name, value)
    except Exception:  # noqa: BLE001 - a config that computes the value itself keeps it
        return


def run(built: Any, case: Case, device: str, mark: Callable[[str], None]) -> None:
    """The case itself, on tensors of ``device``; ``mark`` is called after each stretch."""
    import torch

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
