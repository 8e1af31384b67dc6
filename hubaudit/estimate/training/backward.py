"""The backward pass from the loss down to the embedding: the moments at which most may be alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.estimate.component import component, given
from hubaudit.estimate.moments import Moment
from hubaudit.estimate.overhead import cuda_context
from hubaudit.estimate.training.amounts import Amount
from hubaudit.estimate.training.kept_inputs import norm_temporary
from hubaudit.estimate.training.losses import CHUNKS
from hubaudit.estimate.training.parts import TRACED, activations, casts, part, workspace
from hubaudit.estimate.training.tensors import elements_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.estimate.component import Input
    from hubaudit.estimate.training.losses import Loss
    from hubaudit.estimate.training.setting import TrainSetting
    from hubaudit.estimate.training.stack import Stack
    from hubaudit.estimate.training.states import Standing
    from hubaudit.types import Component

#: More tokens than this make the backward pass of an embedding sort them (torch 2.13.0 aten/src/ATen/native/cuda/Embedding.cu).
_SORTED_TOKENS = 3072


def backward_moments(
    lasting: tuple[Component, ...], held: Standing, stack: Stack, setting: TrainSetting
) -> Iterator[Moment]:
    """Where the loss begins it, at the head, in the layers between which most may be alive, in the embedding."""
    pass_ = _Pass(lasting, held, stack, setting)
    if stack.loss is not None:
        yield from pass_.at_the_loss(stack.loss)
    for layer in stack.turning_points(setting):
        yield from pass_.in_layer(layer)
    if stack.flow.is_trained:
        yield from pass_.in_embeddings()


class _Pass:
    """One backward pass: what lives on, and the gradients and casts that exist when it is somewhere."""

    def __init__(self, lasting: tuple[Component, ...], held: Standing, stack: Stack, setting: TrainSetting) -> None:
        self._lasting = lasting
        self._held = held
        self._stack = stack
        self._setting = setting
        self._adds_up = setting.grad_accum > 1
        vocab = stack.inputs["vocab_size"].value
        self._is_tied = not any(one.role == "head" and one.is_matrix and vocab in one.shape for one in held.trained)
        self._stream = Amount.of(stack.flow.stream, "tokens", "hidden_size")
        self._head_elements = stack.head_elements if stack.flow.is_trained else 0

    def at_the_loss(self, loss: Loss) -> Iterator[Moment]:
        """Gradients of the logits, and then the head's own."""
        stack, setting = self._stack, self._setting
        kept = stack.kept(setting) + stack.around + (stack.cached(setting) if setting.loss == "held" else Amount())
        logits = part("logits", "Activation", loss.backward, stack.inputs, loss.source)
        all_casts = self._casts(len(stack.order) - 1)
        yield self._moment(self._gradients(0), kept, Amount(), stack.inputs, all_casts, logits)
        if setting.loss in ("full", "held"):
            beside = Amount.of(stack.flow.head, "tokens", "vocab_size") + self._stream + self._cast_head()
            yield self._moment(self._gradients(self._head_elements), kept, beside, stack.inputs, all_casts)
        if setting.loss == "chunked" and self._head_elements:
            # the engine takes all losses first, then chunk by chunk the head: its gradient so far, the next one and their sum
            beside = Amount.of(3 * stack.flow.head, "vocab_size", "hidden_size")
            beside += Amount.of((CHUNKS - 2) * stack.flow.head, "chunk_tokens", "vocab_size")
            yield self._moment(self._gradients(0), kept, beside, stack.inputs, all_casts)
        beside = norm_temporary(stack.block, stack.flow)
        yield self._moment(
            self._gradients(self._head_elements),
            kept,
            beside,
            stack.inputs,
            self._casts(len(stack.order) - 1, is_past_head=True),
        )

    def in_layer(self, at: int) -> Iterator[Moment]:
        """The MLP's backward pass, and attention's once what the MLP kept is free."""
        stack, setting = self._stack, self._setting
        inputs, left = stack.at(at, setting), stack.left(setting)
        if stack.layers[at].mixer != stack.block.encoder_mixer:
            left += stack.between
        memory = stack.kinds[stack.order[at]].memory
        above, after = self._reached(at)
        dequantized = Amount.of(2, "largest_matrix") if setting.is_prepared else Amount()
        of_casts, of_rest = self._casts(at), self._casts(at, is_past_mlp=True)
        rest = left - memory.mlp
        mlp, attention = memory.mlp_temporary + dequantized, memory.attention_temporary + dequantized
        yield self._moment(self._gradients(above), left, mlp, inputs, of_casts)
        yield self._moment(self._gradients(after), rest, mlp + self._stream.times(2), inputs, of_rest)
        at_scores = rest - memory.after_attention + stack.recomputed(setting)
        yield self._moment(self._gradients(after), at_scores, attention, inputs, of_rest)
        yield self._moment(self._gradients(after), rest, memory.before_scan, inputs, of_rest)
        norm = norm_temporary(stack.block, stack.flow)
        yield self._moment(self._gradients(after), rest, norm + self._stream, inputs, of_rest)

    def in_embeddings(self) -> Iterator[Moment]:
        """All gradients are there; the embedding's, the head's and their sum where they are one matrix, and what sorts many tokens.

        An encoder's embedding comes after the decoder's, which it is one with: the sum so far is no one else's, and grows in place (torch 2.13.0
        csrc/autograd/input_buffer.cpp).
        """
        stack, held = self._stack, self._held
        made, inputs = self._stream, stack.inputs
        tokens, vocab = inputs["tokens"].value, inputs["vocab_size"].value
        if tokens > _SORTED_TOKENS:
            made += Amount.of(4 * (tokens // 10 + min(tokens, vocab)), "hidden_size") + Amount.of(64, "tokens")
        matrix = Amount.of(held.gradient_bits // 8, "vocab_size", "hidden_size")
        has_sum = self._is_tied and stack.loss is not None
        encoder = sum(layer.mixer == stack.block.encoder_mixer for layer in stack.layers)
        if not encoder:
            yield self._moment(held.gradients, Amount(), made + (matrix.times(2) if has_sum else Amount()), inputs, ())
            return
        after_decoder, _ = self._reached(encoder - 1)
        beside = made + matrix.times(3 if has_sum else 1)
        kept = stack.left(self._setting)
        of_decoder = after_decoder - (self._head_elements if has_sum else 0)
        yield self._moment(
            self._gradients(of_decoder), kept, beside, stack.at(encoder - 1, self._setting), self._casts(encoder - 1)
        )
        yield self._moment(held.gradients, Amount(), made + matrix, inputs, ())

    def _reached(self, at: int) -> tuple[int, int]:
        """Elements that have gradients when backward comes to a layer, and when it is past the layer's MLP; of adapters each layer has its share."""
        stack = self._stack
        if not stack.flow.is_trained:
            reached = elements_of(self._held.trained) * (len(stack.order) - 1 - at) // len(stack.order)
            return reached, reached
        above = self._head_elements + sum(layer.elements for layer in stack.layers[at + 1 :])
        return above, above + stack.layers[at].mlp_elements

    def _moment(
        self,
        gradients: Component,
        kept: Amount,
        temporary: Amount,
        inputs: Mapping[str, Input],
        of_casts: tuple[Component, ...],
        *others: Component,
    ) -> Moment:
        made = (activations(kept, inputs), part("backward", "Workspace", temporary, inputs, TRACED), *others)
        beside = (*of_casts, workspace(2), cuda_context())
        return Moment(phase="backward", components=(*self._lasting, gradients, *made, *beside))

    def _casts(self, at: int, *, is_past_head: bool = False, is_past_mlp: bool = False) -> tuple[Component, ...]:
        """Casts of weights whose backward pass is still to come: with checkpointing those of the segment that is computed again."""
        stack, setting = self._stack, self._setting
        first = at - at % setting.checkpoint_every if setting.checkpointing == "full" else 0
        of_layers = sum(layer.cast_elements for layer in stack.layers[first : at + 1])
        if is_past_mlp:
            of_layers -= stack.layers[at].mlp_cast_elements
        elif at == len(stack.order) - 1 and not is_past_head:
            of_layers += stack.head_elements
        return casts(min(stack.cast_elements, of_layers))

    def _cast_head(self) -> Amount:
        """Under autocast the head's gradient is made in 16 bit first."""
        casts_and_trains = self._stack.flow.casts and self._stack.flow.is_trained
        return Amount({("vocab_size", "hidden_size"): 2}) if casts_and_trains else Amount()

    def _gradients(self, elements: int) -> Component:
        """Gradients of so many elements; all of them where they are added up over batches."""
        if self._adds_up:
            return self._held.gradients
        inputs = {
            "elements": given(
                min(elements, elements_of(self._held.trained)), "shapes of what the backward pass has reached"
            ),
            "gradient_bits": given(self._held.gradient_bits, "the recipe"),
        }
        source = "gradients come into being from the head downwards"
        return component(
            "gradients", "Gradient", "elements * gradient_bits // 8", inputs, exactness="formula", source=source
        )
