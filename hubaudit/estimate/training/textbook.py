"""The textbook's activations of a transformer, as a named reference beside the real ones: Korthikanti et al. 2022, arXiv:2205.05198."""

from __future__ import annotations

SOURCE = "Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2 and 4"


def textbook_activations(
    *,
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    layers: int,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
) -> int:
    """Bytes of ``(34·s·b·h + 5·b·s²·a)·l`` in 16 bit: GELU, dropout, a softmax in 16 bit, four times the hidden size in between, no logits.

    Tensor parallel over ``t``: 10·s·b·h stay whole, 24·s·b·h and the scores are divided; with sequence parallel all is.
    """
    t = tensor_parallel
    stream = sequence * batch * hidden
    scores = 5 * batch * sequence * sequence * heads
    if sequence_parallel:
        return layers * (34 * stream + scores) // t
    return layers * (10 * stream + (24 * stream + scores) // t)
