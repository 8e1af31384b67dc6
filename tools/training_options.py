"""What options of training do to a model, for traces: checkpoints over groups of layers, attention's core computed again, chunked and fused losses.

transformers has none of them itself. Each is made of torch's own operations in the order of the source that the option names.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch.utils.checkpoint import checkpoint

from hubaudit.exact import scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNKS = 8
_SEGMENT = 2
_IGNORED = -100


@contextmanager
def changed(name: str | None) -> Iterator[None]:
    """Every model that is prepared for training meanwhile is changed so; ``None`` changes none."""
    if name is None:
        yield
        return
    prepare, change = scenario._prepared, _CHANGES[name]

    def prepared(model: Any, *others: Any) -> Any:
        made = prepare(model, *others)
        change(made)
        return made

    with patch.object(scenario, "_prepared", prepared):
        yield


class _Segment(torch.nn.Module):  # type: ignore[misc]
    """Layers one after the other, of which only the first one's input is kept.

    Uniform recomputation: NVIDIA/Megatron-LM@d2c5e8b4 megatron/core/transformer/transformer_config.py, ``recompute_num_layers``.
    """

    def __init__(self, layers: list[torch.nn.Module]) -> None:
        super().__init__()
        self.inside = torch.nn.ModuleList(layers)

    def forward(self, stream: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        def through(values: torch.Tensor) -> torch.Tensor:
            for layer in self.inside:
                made = layer(values, *args, **kwargs)
                values = made[0] if isinstance(made, tuple) else made
            return values

        return checkpoint(through, stream, use_reentrant=False)


def _in_segments(model: Any) -> None:
    body = model.base_model
    name = "h" if hasattr(body, "h") else "layers"
    layers = list(getattr(body, name))
    setattr(
        body,
        name,
        torch.nn.ModuleList(_Segment(layers[at : at + _SEGMENT]) for at in range(0, len(layers), _SEGMENT)),
    )


def _core_again(model: Any) -> None:
    """Scores, softmax, dropout and the product with the values are computed again.

    Selective recomputation: arXiv:2205.05198; NVIDIA/Megatron-LM@d2c5e8b4 megatron/core/transformer/transformer_config.py, ``recompute_granularity``.
    """
    module: Any = sys.modules[type(model).__module__]
    attention = module.eager_attention_forward
    if hasattr(attention, "is_wrapped"):
        return

    def again(layer: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(
            lambda *three: attention(layer, *three, *args, **kwargs), query, key, value, use_reentrant=False
        )

    again.is_wrapped = True  # type: ignore[attr-defined]
    module.eager_attention_forward = again


def _without_head(model: Any) -> torch.nn.Parameter:
    """The head gives back what it is given, so that the loss has the stream."""
    head = model.get_output_embeddings()
    head.forward = lambda stream: stream
    return head.weight


def _chunked_loss(model: Any) -> None:
    """Torchtune's CEWithChunkedOutputLoss with TransformerDecoder.chunked_output: the head on a chunk of every sequence, each cast to float32 by itself."""
    weight = _without_head(model)

    def loss(logits: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        chunks = [F.linear(part, weight) for part in logits.tensor_split(_CHUNKS, dim=1)]
        total: Any = 0.0
        for chunk, target in zip(chunks, labels.tensor_split(_CHUNKS, dim=1), strict=True):
            flat = chunk.reshape(-1, chunk.size(-1)).float()
            total = total + F.cross_entropy(flat, target.reshape(-1), ignore_index=_IGNORED, reduction="sum")
        return total / labels.numel()

    model.loss_function = loss


class _Fused(torch.autograd.Function):  # type: ignore[misc]
    """LigerFusedLinearCrossEntropyFunction of linkedin/Liger-Kernel@00eba634: the gradients of stream and head come chunk by chunk in the forward pass."""

    @staticmethod
    def forward(ctx: Any, stream: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        tokens, hidden = stream.shape
        ratio = -(-weight.shape[0] // hidden)
        chunk = min(tokens, 1 << (-(-tokens // ratio) - 1).bit_length())
        of_stream = torch.zeros_like(stream)
        of_weight = torch.zeros_like(weight)
        losses = torch.zeros(tokens, dtype=torch.float32, device=stream.device)
        logits = torch.empty(chunk, weight.shape[0], dtype=stream.dtype, device=stream.device)
        for start in range(0, tokens, chunk):
            part = stream[start : start + chunk]
            inside = logits[: part.shape[0]]
            torch.mm(part, weight.t(), out=inside)
            torch.mm(inside, weight, out=of_stream[start : start + chunk])
            torch.addmm(of_weight, inside.t(), part, out=of_weight)
        ctx.save_for_backward(of_stream, of_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        of_stream, of_weight = ctx.saved_tensors
        return of_stream, of_weight


def _fused_loss(model: Any) -> None:
    weight = _without_head(model)

    def loss(logits: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return _Fused.apply(logits.reshape(-1, logits.size(-1)), weight)

    model.loss_function = loss


_CHANGES = {
    "in_segments": _in_segments,
    "core_again": _core_again,
    "chunked_loss": _chunked_loss,
    "fused_loss": _fused_loss,
}
