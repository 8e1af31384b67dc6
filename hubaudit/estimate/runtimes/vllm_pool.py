"""vLLM's pool of blocks: layers in groups that share block tables, all blocks of one size, and how many a sequence takes.

As in vllm/v1/core/kv_cache_utils.py at 001cabc1be16: get_kv_cache_groups, unify_kv_cache_spec_page_size,
_get_kv_cache_groups_uniform_page_size; and vllm/v1/kv_cache_interface.py, max_memory_usage_bytes of each spec.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.estimate.runtimes.layer_parts import NotModelledError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubaudit.estimate.runtimes.vllm_pages import PageSpec

_MUCH_LARGER = 3, 2  # up to here groups are as large as the largest kind, beyond it as the smallest


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """``groups`` block tables for layers of each spec; a block is ``block_bytes`` over all layers of a group."""

    groups: tuple[tuple[PageSpec, int], ...]
    block_bytes: int
    layers_in_group: int

    @property
    def is_uniform(self) -> bool:
        """Whether one block table of blocks for every token serves all layers, so that each token costs the same."""
        return len(self.groups) == 1 and self.groups[0][1] == 1 and self.groups[0][0].kind == "full"


def pool_of(specs: list[PageSpec]) -> Pool | None:
    """The pool for these layers; ``None`` where no layer keeps anything.

    Raises:
        NotModelledError: pages that vLLM cannot make equal.
    """
    if not specs:
        return None
    if len({(spec.kind, spec.window_tokens, spec.block_tokens) for spec in specs}) == 1:
        whole_bytes = sum(spec.page_bytes for spec in specs)
        return Pool(groups=((specs[0], 1),), block_bytes=whole_bytes, layers_in_group=len(specs))
    counts = Counter(_of_one_size(specs))
    smallest, largest = min(counts.values()), max(counts.values())
    size = largest if largest * _MUCH_LARGER[1] < smallest * _MUCH_LARGER[0] else smallest
    page_bytes = next(iter(counts)).page_bytes
    groups = tuple((spec, -(-count // size)) for spec, count in counts.items())
    return Pool(groups=groups, block_bytes=page_bytes * size, layers_in_group=size)


def _of_one_size(specs: Iterable[PageSpec]) -> list[PageSpec]:
    """Smaller pages take more tokens until they are as large as the largest; those of states are filled up."""
    specs = list(specs)
    largest = max(spec.page_bytes for spec in specs)
    made = []
    for spec in specs:
        times, rest = divmod(largest, spec.page_bytes)
        if rest and spec.kind != "state":
            raise NotModelledError(
                f"vLLM cannot make pages of {spec.page_bytes:,} and {largest:,} bytes equal, and refuses the model"
            )
        tokens = spec.block_tokens if spec.kind == "state" else spec.block_tokens * times
        made.append(replace(spec, page_bytes=largest, block_tokens=tokens))
    return made


def blocks_formula(spec: PageSpec, tokens: str) -> str:
    """Blocks of one block table that a sequence of ``tokens`` (a formula) takes at most, as a formula.

    A window's blocks are counted while the prompt is taken in pieces of ``batched_tokens``; one more, for it may begin inside a block.
    """
    size = f"{spec.label}_block_tokens"
    if spec.kind == "state":
        return "(1 + draft_tokens)"
    if spec.kind == "cross":
        return f"ceil_div(encoder_tokens, {size})"
    if spec.kind == "sliding":
        return f"(ceil_div(min({spec.window_tokens} - 1 + batched_tokens, {tokens}), {size}) + 1)"
    if spec.kind == "chunked":
        return f"ceil_div(min({spec.window_tokens} + batched_tokens, {tokens}), {size})"
    return f"ceil_div({tokens}, {size})"


def sequence_formula(pool: Pool, tokens: str) -> str:
    """Blocks that a sequence of ``tokens`` (a formula) takes of the pool, as a formula over :func:`pool_inputs` and the workload's."""
    return " + ".join(f"{spec.label}_groups * {blocks_formula(spec, tokens)}" for spec, _ in pool.groups)


def pool_inputs(pool: Pool) -> dict[str, int]:
    """The numbers that :func:`sequence_formula` names of the pool."""
    named: dict[str, int] = {}
    for spec, count in pool.groups:
        named[f"{spec.label}_groups"] = count
        named[f"{spec.label}_block_tokens"] = spec.block_tokens
    return named
