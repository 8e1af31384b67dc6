"""The most that fits: largest batch, longest context, best precision, each found by asking the estimator."""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, dtype_named
from hubaudit.estimate.conversion import with_quant
from hubaudit.estimate.modes import definite, estimate
from hubaudit.fit.search import largest, longest_by_period

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import ModelFacts, Workload

#: Beyond these nobody asks; what fits even so has no limit.
MOST_SEQUENCES = 2**20
MOST_TOKENS = 2**30


class Scale:
    """One model and one workload on the scales: the upper end of the estimate's band for other batches, contexts and precisions.

    Every answer is kept, for several devices ask the same questions.
    """

    def __init__(self, facts: ModelFacts, workload: Workload) -> None:
        self.facts = facts
        self.asked = definite(facts, workload)
        self._workload = (
            self.asked
            if self.asked.mode == "train"
            else replace(
                workload,
                prompt_tokens=self.asked.prompt_tokens,
                new_tokens=self.asked.new_tokens,
                dtype=self.asked.dtype,
            )
        )
        self._known: dict[Workload, int] = {}

    def of_batch(self, batch_size: int) -> int:
        """Bytes with so many sequences at once."""
        return self._weighed(replace(self._workload, batch_size=batch_size))

    def of_context(self, tokens: int) -> int:
        """Bytes with so many tokens a sequence, the new ones of the workload among them."""
        if self.asked.mode == "train":
            return self._weighed(replace(self._workload, sequence_tokens=tokens))
        return self._weighed(replace(self._workload, prompt_tokens=tokens - (self.asked.new_tokens or 0)))

    def of_precision(self, dtype: str, quant: str | None) -> int:
        """Bytes with the weights loaded so."""
        return self._weighed(with_quant(replace(self._workload, dtype=dtype), quant))

    def _weighed(self, workload: Workload) -> int:
        if workload not in self._known:
            self._known[workload] = estimate(self.facts, workload).high_bytes
        return self._known[workload]


def largest_batch(scale: Scale, usable_bytes: int) -> int | None:
    """The most sequences at once that fit; 0 where not even one does, ``None`` where there is no limit."""
    found = largest(scale.of_batch, usable_bytes, 1, MOST_SEQUENCES)
    return None if found == MOST_SEQUENCES else found


def longest_context(scale: Scale, usable_bytes: int) -> int | None:
    """The most tokens a sequence, prompt and new ones, up to which every length fits.

    The new tokens stay as asked and the prompt grows, to no more than the positions that the model declares. 0 where not even a
    prompt of one token fits, ``None`` where neither memory nor the model sets a limit.
    """
    least = (scale.asked.new_tokens or 0) + 1
    asked = scale.asked.sequence_tokens or least - 1 + (scale.asked.prompt_tokens or 1)
    positions = scale.facts.max_positions.value
    most = MOST_TOKENS if positions is None else max(positions, asked)
    period = _period(scale.facts)
    if period == 1:
        found = largest(scale.of_context, usable_bytes, least, most)
    else:
        found = longest_by_period(scale.of_context, usable_bytes, least, most, period)
    return None if found == most and positions is None else found


def best_precision(scale: Scale, usable_bytes: int) -> str | None:
    """The weights' precision nearest to the load dtype with which the workload fits, by the name that the report's table gives it.

    Tried in this order: the load dtype, bf16 where that is wider, int8 and nf4 by bitsandbytes. A checkpoint that is quantized already
    is taken as it is, or not at all. ``None`` where nothing fits.
    """
    quantization = scale.facts.quantization
    if quantization is not None:
        return quantization.method if scale.of_batch(scale.asked.batch_size) <= usable_bytes else None
    for dtype, quant in _ladder(scale.asked.dtype or "fp32"):
        if scale.of_precision(dtype, quant) <= usable_bytes:
            return quant or dtype
    return None


def _ladder(dtype: str) -> Iterator[tuple[str, str | None]]:
    yield dtype, None
    named = dtype_named(dtype)
    half = dtype if named is not None and bits_of()[named] == 16 else "bf16"
    if half != dtype:
        yield half, None
    yield half, "int8"
    yield half, "nf4"


def _period(facts: ModelFacts) -> int:
    """After how many tokens the caches' unfinished entries are all empty again; 1 where there are none."""
    owned = [tensor for layer in facts.layer_plan or () for tensor in layer.tensors]
    return lcm(*(tensor.tokens_per_entry for tensor in owned if tensor.unfinished))
