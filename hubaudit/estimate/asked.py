"""What nobody can ask for, whatever the model: fewer than one of what is counted from one, and a threshold that is no number."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from hubaudit.errors import UsageError

if TYPE_CHECKING:
    from hubaudit.types import Workload

#: The counts that sizes are multiplied and divided by, where the command line has bounds of its own.
_FROM_ONE = (
    "batch_size", "prompt_tokens", "sequence_tokens", "max_cache_len", "grad_accum", "checkpoint_every", "lora", "gpus", "tp", "pp", "ep", "cp",
    "quant_group_size", "num_beams", "num_return_sequences",
)  # fmt: skip
_FROM_NONE = ("new_tokens", "encoder_tokens", "draft_tokens")


def refuse_impossible(workload: Workload) -> None:
    """Raise where the workload cannot be any.

    Raises:
        UsageError: which count is too small, or that the threshold is none.
    """
    for least, names in ((1, _FROM_ONE), (0, _FROM_NONE)):
        for name in names:
            count = getattr(workload, name)
            if count is not None and count < least:
                raise UsageError(f"{name} must be at least {least}, not {count}")
    if not isfinite(workload.llm_int8_threshold):
        raise UsageError("the outlier threshold is no number", hint="--llm-int8-threshold 6, or 0 for none")
