"""Which part of a tensor a device holds: transformers' plan for Qwen2, tensor by tensor, and what no rule is known for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fixture_models import facts_of

from hubaudit.estimate.split.layout import Split, SplitError
from hubaudit.estimate.split.rules import WHOLE, Piece, transformers_piece
from hubaudit.estimate.split.share import check, held_whole

QWEN = "qwen2-0.5b-instruct"
LAYER = "model.layers.*."


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.embed_tokens.weight", [Piece(dimension=0, part=part, whole=151_936) for part in (50_646, 50_646, 50_644)]),
        (LAYER + "self_attn.q_proj.weight", [Piece(dimension=0, part=part, whole=896) for part in (299, 299, 298)]),
        (LAYER + "self_attn.q_proj.bias", [Piece(dimension=0, part=part, whole=896) for part in (299, 299, 298)]),
        (LAYER + "mlp.down_proj.weight", [Piece(dimension=1, part=part, whole=4864) for part in (1622, 1622, 1620)]),
        (LAYER + "input_layernorm.weight", [WHOLE, WHOLE, WHOLE]),
    ],
)  # fmt: skip
def test_pieces_of_transformers_plan(name: str, expected: list[Piece]) -> None:
    """base_model_tp_plan of Qwen2Config: rows of the embedding, outputs of q_proj and of its bias, inputs of down_proj, no norm; cut as torch.chunk cuts."""
    facts = facts_of(QWEN)
    (group,) = (group for group in facts.tensor_groups if group.pattern == name)
    assert [transformers_piece(facts, group, 3, rank) for rank in range(3)] == expected


@pytest.mark.parametrize(("name", "kind"), [("bias", "bias"), ("weight_scale", "scale")])
def test_what_there_is_for_each_output_of_divided_inputs_is_whole(name: str, kind: str) -> None:
    """Every device has all outputs of its part of the sum: the bias (torch.distributed.tensor.parallel.RowwiseParallel replicates it), and a scale for each."""
    facts = facts_of(QWEN)
    (group,) = (group for group in facts.tensor_groups if group.pattern == LAYER + "self_attn.q_proj.bias")
    beside = replace(group, pattern=LAYER + f"self_attn.o_proj.{name}", kind=kind)
    assert transformers_piece(facts, beside, 2, 0) == WHOLE


@pytest.mark.parametrize(
    ("runtime", "split", "is_named"),
    [
        ("vllm", Split(tensor=2), True),
        ("vllm", Split(pipeline=2), False),
        ("transformers", Split(tensor=2), False),
        ("llama.cpp", Split(pipeline=2), False),
    ],
)
def test_tensors_without_a_rule_are_named_where_matrices_are_cut(runtime: str, split: Split, *, is_named: bool) -> None:
    """By vLLM, whose table has no row for them; nobody else goes by that table, and without --tp no matrix is cut."""
    facts = facts_of(QWEN)
    (group,) = (group for group in facts.tensor_groups if group.pattern == LAYER + "mlp.up_proj.weight")
    unheard = replace(group, pattern=LAYER + "mlp.unheard_of.weight")
    facts = replace(facts, tensor_groups=(*facts.tensor_groups, unheard))
    assert held_whole(facts, split, runtime) == ([unheard] if is_named else [])


#: 128 heads, 18,432 dense and 2,048 expert columns in blocks of 128 (config.json of deepseek-ai/DeepSeek-V3).
FP8_DEGREES = [2, 4, 8, 16]


@pytest.mark.parametrize("runtime", ["transformers", "vllm"])
@pytest.mark.parametrize("count", range(2, 33))
def test_blocks_with_a_scale_each_are_not_cut(runtime: str, count: int) -> None:
    """DeepSeek-V3 in FP8: 2,048 columns of an expert in blocks of 128 are 16 blocks, so only a divisor of 16 leaves each device whole blocks.

    vLLM refuses others (validate_fp8_block_shape), and in transformers a device would have another block's scales.
    """
    facts = facts_of("deepseek-v3")
    if count in FP8_DEGREES:
        check(facts, Split(tensor=count), runtime)
    else:
        with pytest.raises(SplitError):
            check(facts, Split(tensor=count), runtime)


def test_experts_that_are_not_cut_have_whole_blocks() -> None:
    """Where devices share the experts whole, only the dense layers' 18,432 columns, 144 blocks, and 128 heads are cut: 3 divides the former."""
    facts = facts_of("deepseek-v3")
    assert 18_432 // 128 % 3 == 0
    with pytest.raises(SplitError, match=r"shared_experts.*no whole blocks"):
        check(facts, Split(tensor=3, expert=3), "transformers")


def test_a_scale_for_each_output_cuts_nothing() -> None:
    """One scale a row of int8 weights: rows are cut wherever the plan cuts them, as without scales."""
    facts = facts_of(QWEN)
    (group,) = (group for group in facts.tensor_groups if group.pattern == LAYER + "mlp.down_proj.weight")
    scale = replace(group, pattern=f"{group.pattern}_scale", shape=(896, 1), kind="scale", parameters=0)
    check(replace(facts, tensor_groups=(*facts.tensor_groups, scale)), Split(tensor=2), "vllm")


def test_two_matrices_in_one_are_cut_each_by_itself() -> None:
    """Mixtral's gate_up_proj is packed_colwise in base_model_tp_plan of MixtralConfig: of 14,336 rows of either matrix three devices get what torch.chunk gives."""
    facts = facts_of("mixtral-8x7b-v0.1")
    group = next(group for group in facts.tensor_groups if group.role == "expert")
    packed = replace(group, pattern=LAYER + "mlp.experts.gate_up_proj", shape=(8, 2 * 14_336, 4_096))
    parts = [transformers_piece(facts, packed, 3, rank) for rank in range(3)]
    assert parts == [Piece(dimension=1, part=2 * part, whole=2 * 14_336) for part in (4_779, 4_779, 4_778)]
