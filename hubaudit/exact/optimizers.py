"""Optimizers by the names of ``data/optimizers.toml``: torch's own, and stand-ins for bitsandbytes' that hold what those hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Name → class in torch.optim, and its arguments.
_TORCH: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {"fused": True}),
    "adamw_foreach": ("AdamW", {"foreach": True}),
    "adamw_loop": ("AdamW", {"foreach": False}),
    "adamw_amsgrad": ("AdamW", {"fused": True, "amsgrad": True}),
    "sgd": ("SGD", {"lr": 0.1, "fused": True}),
    "sgd_momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "rmsprop": ("RMSprop", {"foreach": True}),
    "adagrad": ("Adagrad", {"foreach": True}),
    "adamax": ("Adamax", {"foreach": True}),
    "nadam": ("NAdam", {"foreach": True}),
    "radam": ("RAdam", {"foreach": True}),
    "adadelta": ("Adadelta", {"foreach": True}),
    "adafactor_torch": ("Adafactor", {}),
}
#: bitsandbytes' blockwise 8-bit optimizers: how many states each has.
_BLOCKWISE = {"adamw_8bit": 2, "lion_8bit": 1, "rmsprop_8bit": 1}
_BLOCK = 256
_SMALLEST = 4096
_MAP_BYTES = 1024


def make(name: str, model: Any) -> Any:
    """An optimizer of the model's trainable parameters.

    Raises:
        UsageError: exact mode has none of this name.
    """
    import torch

    trainable = [one for one in model.parameters() if one.requires_grad]
    if name in _TORCH:
        cls, arguments = _TORCH[name]
        return getattr(torch.optim, cls)(trainable, **arguments)
    if name in _BLOCKWISE:
        return Blockwise(model, _BLOCKWISE[name])
    known = ", ".join((*_TORCH, *_BLOCKWISE))
    raise UsageError(f"exact mode does not run the optimizer {name}", hint=f"it runs {known}")


class Blockwise:
    """An 8-bit optimizer of bitsandbytes: states in bytes with a scale for each 256 values; small tensors and embeddings in fp32.

    The sizes are those of bitsandbytes 0.50.2, held against its real objects; an update takes no memory beside them. The Trainer keeps
    embeddings in 32 bits, and so does this.
    """

    def __init__(self, model: Any, states: int) -> None:
        import torch

        self._states = states
        self._kept: list[Any] = []
        embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
        self._parameters = [(one, id(one) in embeddings) for one in model.parameters() if one.requires_grad]

    def step(self) -> None:
        """The first update makes the states."""
        if not self._kept:
            self._kept = list(self._made())

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for parameter, _ in self._parameters:
            parameter.grad = None

    def tensors(self) -> list[Any]:
        """All that it keeps."""
        return self._kept

    def _made(self) -> Iterator[Any]:
        import torch

        for _ in range(2):  # the maps of signed and unsigned values
            yield torch.empty(_MAP_BYTES, dtype=torch.uint8, device="meta")
        for parameter, is_embedding in self._parameters:
            values = parameter.numel()
            is_small = values < _SMALLEST or is_embedding
            for _ in range(self._states):
                dtype = torch.float32 if is_small else torch.uint8
                yield torch.empty(values, dtype=dtype, device=parameter.device)
            for _ in range(0 if is_small else self._states):
                yield torch.empty(-(-values // _BLOCK), dtype=torch.float32, device=parameter.device)


def state_tensors(optimizer: Any) -> Iterator[Any]:
    """The tensors that an optimizer keeps between steps."""
    import torch

    if isinstance(optimizer, Blockwise):
        yield from optimizer.tensors()
        return
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))
