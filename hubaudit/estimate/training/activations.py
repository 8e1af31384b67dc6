"""What autograd keeps of one layer, and what its backward pass needs beside, as amounts.

Every term is a storage that a named operation saves. The sums equal storage-lifetime traces of the real model code on meta tensors
(tests/estimate/training/test_activations_oracle.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.estimate.training.amounts import Amount, total
from hubaudit.estimate.training.attention import attention_saved, attention_temporary, cache_copies
from hubaudit.estimate.training.kept_inputs import norm_saved, ranks_saved, shared_input
from hubaudit.estimate.training.mixers import by_kernel, mixer_named, terms

if TYPE_CHECKING:
    from hubaudit.estimate.training.block import Block
    from hubaudit.estimate.training.flow import Flow
    from hubaudit.estimate.training.lora import Targets

_FLOAT = 4
_HIDDEN = "hidden_size"
_PYTHON_GELU_TENSORS = 5
#: Sizes that tensor parallel divides.
DIVIDED_SIZES = frozenset(
    {
        "query_size",
        "key_size",
        "attention_heads",
        "kv_heads",
        "intermediate_size",
        "shared_size",
        "expert_size",
        "vocab_size",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """One layer: what is kept from forward to backward, and the most that backward holds beside it, in MLP and attention.

    ``mlp`` is the part of ``saved`` that is free again when attention's backward runs, ``after_attention`` what is free besides when it is at its scores:
    norms and dropout that come after it; ``before_scan`` what a norm behind a scan holds in its backward pass; ``cached`` what the cache of keys and values, which a training forward fills
    unless it is told not to, holds beside ``saved``.
    """

    saved: Amount
    mlp: Amount
    after_attention: Amount
    mlp_temporary: Amount
    attention_temporary: Amount
    before_scan: Amount
    boundary: Amount
    cached: Amount
    adapting: Amount

    def along_sequence(self) -> LayerMemory:
        """With sequence parallel: what tensor parallel leaves whole is divided along the sequence."""
        return LayerMemory(
            **{name: getattr(self, name).renamed("tokens", "shard_tokens", DIVIDED_SIZES) for name in self.__slots__}
        )


def layer_memory(
    block: Block, flow: Flow, kernel: str, targets: Targets, *, routed: bool, dense: bool, mixer: str | None = None
) -> LayerMemory:
    """The memory of one layer for ``tokens`` tokens.

    Args:
        block: how it computes.
        flow: how wide its values are.
        kernel: which attention kernel runs.
        targets: which of its matrices have adapters.
        routed: it has experts.
        dense: it has a dense MLP (of the intermediate size).
        mixer: the row of mixers.toml that stands in the place of attention.
    """
    width = "shared_size" if routed else "intermediate_size"
    dense = dense and block.mlp != "none"
    mlp = total([_dense_mlp(block, flow, targets, width)] if dense else [])
    mlp += total(
        [_experts(flow, targets), terms(block.router, flow), terms(block.experts_keep, flow)] if routed else []
    )
    mixed = (
        attention_saved(block, flow, kernel, targets) if mixer is None else _mixer(block, flow, kernel, targets, mixer)
    )
    saved = norm_saved(block, flow).times(block.norms) + mixed + mlp
    saved += Amount.of(block.dropouts, "tokens", _HIDDEN)
    if (
        flow.has_magnitudes
    ):  # results of the base and of the adapter, for the magnitudes' gradient (peft 0.21.2 tuners/lora/dora.py)
        saved += Amount.of(flow.inner + _FLOAT, "tokens", "adapted_outputs")
    backward = (
        attention_temporary(block, flow, kernel)
        if mixer is None
        else by_kernel(mixer_named(mixer), "temporary", kernel, flow)
    )
    return LayerMemory(
        saved=saved,
        mlp=mlp,
        after_attention=_after_attention(block, flow, mixer),
        mlp_temporary=_mlp_temporary(block, flow, targets, width if dense else None, routed=routed),
        attention_temporary=backward,
        before_scan=Amount() if mixer is None else terms(mixer_named(mixer).get("temporary_before", ""), flow),
        boundary=Amount.of(flow.stream, "tokens", _HIDDEN),
        cached=cache_copies(block, flow) if mixer is None else Amount(),
        adapting=_adapting(block, flow, targets, width if dense else None, mlp),
    )


def _after_attention(block: Block, flow: Flow, mixer: str | None) -> Amount:
    """Of a layer of plain attention: all norms but the one that it reads, and all dropout of the stream."""
    if mixer is not None:
        return Amount()
    norms = block.norms if block.post_norm else block.norms - 1
    return norm_saved(block, flow).times(norms) + Amount.of(block.dropouts, "tokens", _HIDDEN)


def _adapting(block: Block, flow: Flow, targets: Targets, width: str | None, kept: Amount) -> Amount:
    """The MLP as its last matrix of the stream adds the adapter's result, and its product with the scale, to the base's; ``kept`` where that is no more."""
    if not targets.mlp_in or width is None:
        return kept
    is_fused = "gate_up" in block.fused
    sums = (2 if is_fused else 1) * (2 * flow.adapter + flow.inner)
    before = flow.inner if block.mlp == "gated" and not is_fused else 0
    inputs = shared_input(flow, _HIDDEN, targets.mlp_in, 2, flow.stream) + ranks_saved(flow, targets.mlp_in)
    made = inputs + Amount.of(sums + before, "tokens", width) + Amount.of(2 * flow.stream, "tokens", _HIDDEN)
    if flow.has_magnitudes:  # the weight and the product of both factors in float32, the identity, and one sum more
        made += Amount.of(2 * _FLOAT, _HIDDEN, "widest_output") + Amount.of(_FLOAT, _HIDDEN, _HIDDEN)
        made += Amount.of(_FLOAT, "tokens", "widest_output")
    return made


def _mixer(block: Block, flow: Flow, kernel: str, targets: Targets, name: str) -> Amount:
    """What a mixer of the table keeps, its matrices' inputs among it."""
    row = mixer_named(name)
    made = by_kernel(row, "keeps", kernel, flow)
    for width in row.get("norms", ()):
        made += norm_saved(block, flow, width)
    for read in row.get("reads", ()):
        width, matrices = read["of"], read["by"]
        adapted = len(targets.names.intersection(matrices))
        wide = flow.stream if width == _HIDDEN else flow.inner
        is_kept = read.get("is_kept", False)
        made += shared_input(flow, width, adapted, len(matrices), wide, is_kept=is_kept) + ranks_saved(flow, adapted)
    return made


def _dense_mlp(block: Block, flow: Flow, targets: Targets, width: str) -> Amount:
    wide = ("tokens", width)
    gated = block.mlp == "gated"
    products = 1 if not gated or "gate_up" in block.fused else 2
    saved = shared_input(flow, _HIDDEN, targets.mlp_in, products, flow.stream, is_kept=block.parallel)
    chain = 3 * _FLOAT + flow.inner if flow.casts else (_PYTHON_GELU_TENSORS - 1) * flow.inner
    if gated and block.activation == "gelu_python":
        saved += Amount.of(chain + (_FLOAT if flow.casts else flow.inner) + flow.inner, *wide)
    elif gated:
        saved += Amount.of(3 * flow.inner, *wide)
    elif block.activation == "gelu_python":
        saved += Amount.of(chain, *wide)
    elif block.activation != "relu":
        saved += Amount.of(flow.inner, *wide)
    is_kept = block.activation == "relu"
    saved += Amount.of(flow.inner, *wide) if is_kept else Amount()
    if block.mlp_dropout:
        saved += Amount.of(1, *wide)
        is_kept = False
    saved += shared_input(flow, width, targets.mlp_out, 1, flow.inner, is_kept=is_kept)
    return saved + ranks_saved(flow, targets.mlp_in + targets.mlp_out)


def _experts(flow: Flow, targets: Targets) -> Amount:
    """Routed experts as one grouped product: the gathered inputs, gate and up, their activation and product, and the outputs."""
    routed = ("tokens", "experts_per_token", "expert_size")
    gathered = ("tokens", "experts_per_token", _HIDDEN)
    outputs = Amount.of(flow.inner, *gathered) + Amount.of(3 * flow.inner, *routed)
    if not flow.is_trained and not targets.experts:
        return outputs
    made = outputs + Amount.of(flow.inner, *gathered) + Amount.of(flow.inner, *routed)
    if flow.is_trained:
        return made + Amount.of(flow.stream, "tokens", _HIDDEN)
    # PEFT's adapters on fused experts (0.21.2 tuners/lora/layer.py, ParamWrapper): the product of both factors is made as large as the weight, and their sum computed with
    made += Amount.of(3 * flow.inner, "experts", "expert_size", _HIDDEN)
    if flow.adapter != flow.inner:
        made += Amount.of(3 * flow.inner, "rank", "experts", _HIDDEN)
        made += Amount.of(5 * flow.inner, "rank", "experts", "expert_size")
    return made


def _mlp_temporary(block: Block, flow: Flow, targets: Targets, width: str | None, *, routed: bool) -> Amount:
    """Gradients of the stream and of both factors of the MLP's product."""
    made = Amount.of(flow.stream, "tokens", _HIDDEN)
    if width is not None:
        is_chain = block.activation == "gelu_python" and flow.casts
        if is_chain:  # it runs in float32, and its cast result is free by then
            made += Amount.of(3 * _FLOAT - flow.inner, "tokens", width)
        # where a bias has a gradient, the sum over tokens takes as much as two float32 values each, when one of the two is free again
        if not is_chain or block.mlp == "gated":
            made += Amount.of(2 * (_FLOAT if block.bias_sums and flow.is_trained else flow.inner), "tokens", width)
        if targets.mlp_out and flow.adapter != flow.inner and flow.drops:
            made += Amount.of(flow.adapter, "tokens", width)
    if (
        flow.has_magnitudes
    ):  # the sum of base and adapter, scaled, in float32, and the identity whose image is the adapter's weight
        made += Amount.of(5 * _FLOAT, "tokens", "widest_output") + Amount.of(_FLOAT, _HIDDEN, _HIDDEN)
    if routed:
        made += Amount.of(2 * flow.inner, "tokens", "experts_per_token", "expert_size")
        made += Amount.of(flow.inner, "tokens", "experts_per_token", _HIDDEN)
        if targets.experts:  # the gradient of a sum of weight and adapter, as large as the weight
            made += Amount.of(flow.inner, "experts", "expert_size", _HIDDEN)
    return made
