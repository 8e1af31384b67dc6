"""Tensors into groups, roles and counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from fixture_models import NAMES, facts_of, made, snapshot_of
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.facts.model import understand
from hubaudit.facts.packing import PLAINLY, Held
from hubaudit.facts.tensors import by_name, group_tensors, pattern_of, role_of
from hubaudit.types import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@pytest.mark.parametrize(
    ("name", "role"),
    [
        # names as the checkpoints of the models named in roles.toml have them
        ("model.embed_tokens.weight", "embedding"),
        ("transformer.wpe.weight", "embedding"),
        ("bert.embeddings.token_type_embeddings.weight", "embedding"),
        ("shared.weight", "embedding"),
        ("model.layers.3.self_attn.q_proj.weight", "attention"),
        ("model.layers.3.self_attn.q_proj.bias", "attention"),
        ("bert.encoder.layer.0.attention.output.dense.weight", "attention"),
        ("decoder.block.0.layer.1.EncDecAttention.q.weight", "attention"),
        ("transformer.h.0.attn.c_proj.weight", "attention"),
        ("model.layers.0.linear_attn.in_proj_qkvz.weight", "attention"),
        ("model.layers.3.mlp.down_proj.weight", "mlp"),
        ("bert.encoder.layer.0.output.dense.weight", "mlp"),
        ("bert.encoder.layer.0.intermediate.dense.bias", "mlp"),
        ("encoder.block.0.layer.1.DenseReluDense.wi_0.weight", "mlp"),
        ("transformer.h.0.mlp.c_fc.weight", "mlp"),
        ("model.layers.3.mlp.experts.17.gate_proj.weight", "expert"),
        ("model.layers.0.block_sparse_moe.experts.2.w1.weight", "expert"),
        ("model.layers.3.mlp.experts.gate_up_proj", "expert"),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", "shared_expert"),
        ("model.layers.3.mlp.gate.weight", "router"),
        ("model.layers.3.mlp.gate.e_score_correction_bias", "router"),
        ("model.layers.0.block_sparse_moe.gate.weight", "router"),
        ("model.layers.3.input_layernorm.weight", "norm"),
        ("model.layers.3.self_attn.q_norm.weight", "norm"),
        ("model.norm.weight", "norm"),
        ("transformer.ln_f.bias", "norm"),
        ("bert.embeddings.LayerNorm.gamma", "norm"),
        ("bert.encoder.layer.0.attention.output.LayerNorm.weight", "norm"),
        ("encoder.block.0.layer.0.layer_norm.weight", "norm"),
        ("lm_head.weight", "head"),
        ("cls.predictions.decoder.weight", "head"),
        ("embed_out.weight", "head"),
        ("visual.blocks.0.attn.qkv.weight", "vision"),
        ("model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", "vision"),
        ("audio_tower.layers.0.fc1.weight", "audio"),
        ("backbone.layers.0.mixer.in_proj.weight", "state_space"),
        ("backbone.layers.0.mixer.A_log", "state_space"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "buffer"),
        ("roberta.embeddings.position_ids", "buffer"),
    ],
)
def test_roles_of_real_names(name: str, role: str) -> None:
    """Each name has the role that its module has in the model."""
    assert role_of(pattern_of(name)) == role


def test_only_numbers_that_stand_alone_are_replaced() -> None:
    """Layer and expert numbers go, names with digits stay."""
    assert pattern_of("model.layers.12.mlp.experts.7.w1.weight") == "model.layers.*.mlp.experts.*.w1.weight"
    assert pattern_of("0.auto_model.fc1.weight") == "*.auto_model.fc1.weight"
    assert pattern_of("h.0.expert_3.wi.weight") == "h.*.expert_*.wi.weight"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.sampled_from(["a.weight", "b.bias"]),
            st.sampled_from(["F32", "BF16"]),
            st.integers(0, 9),
        ),
        max_size=60,
        unique_by=lambda row: (row[0], row[1]),
    )
)
def test_grouping_loses_nothing(rows: list[tuple[int, str, str, int]]) -> None:
    """Parameters, bytes and counts of the groups add up to those of the tensors."""
    tensors = [TensorInfo(f"layers.{at}.{name}", dtype, (size, 2), 8 * size) for at, name, dtype, size in rows]
    groups = group_tensors(by_name(tensors))
    assert sum(group.count for group in groups) == len(tensors)
    assert sum(group.parameters for group in groups) == sum(2 * size for *_, size in rows)
    assert sum(group.stored_bytes for group in groups) == sum(8 * size for *_, size in rows)


def test_a_name_in_two_shards_counts_once() -> None:
    """A tensor that two files hold is one tensor."""
    tensor = TensorInfo("model.norm.weight", "F32", (4,), 16)
    assert [group.count for group in group_tensors(by_name([tensor, tensor]))] == [1]


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_of_the_fixtures_has_a_role(name: str) -> None:
    """No real model has weights whose purpose is not understood."""
    unknown = {group.pattern for group in facts_of(name).tensor_groups if group.role == "other"}
    assert not unknown


@pytest.mark.parametrize("name", NAMES)
def test_roles_and_dtypes_both_add_up_to_the_total(name: str) -> None:
    """Counts by role and by dtype are two views of one total."""
    count = facts_of(name).parameters
    if count is None:
        pytest.skip("parameters not counted")
    assert sum(count.by_role.values()) == sum(count.by_dtype.values()) == count.total
    assert count.loaded == count.total - sum(count.extra.values())
    assert count.active is None or count.active <= count.loaded


@pytest.mark.parametrize("name", NAMES)
def test_stored_bytes_are_those_of_the_headers(name: str) -> None:
    """What lies in the files is what the headers say, tensor by tensor."""
    stored = sum(tensor.stored_bytes for file in snapshot_of(name).weights for tensor in file.tensors)
    assert facts_of(name).stored_bytes == stored


def test_active_parameters_of_mixtral() -> None:
    """Two of eight experts, all else: 12,879,925,248 of Mixtral-8x7B's 46,702,792,704 (mistral.ai: 12.9B of 46.7B)."""
    if "mixtral-8x7b-v0.1" not in NAMES:
        pytest.skip("no such fixture")
    count = facts_of("mixtral-8x7b-v0.1").parameters
    assert count is not None
    assert count.total == 46_702_792_704
    assert count.active is not None
    assert f"{count.active / 1e9:.1f}" == "12.9"


def test_stored_masks_are_buffers_not_parameters_to_load() -> None:
    """GPT-2's files hold causal masks named `attn.bias`: counted as the Hub counts, not loaded."""
    tensors = {
        "h.0.attn.bias": ("F32", (1, 1, 4, 4)),
        "h.0.attn.c_attn.bias": ("F32", (12,)),
        "h.0.attn.c_attn.weight": ("F32", (4, 12)),
    }
    count = understand(made(None, tensors)).parameters
    assert count is not None
    assert (count.total, count.loaded, count.extra) == (16 + 12 + 48, 60, {"buffer": 16})


def test_first_numbers_say_where_a_groups_tensors_are() -> None:
    """Each layer with how many of the group's tensors it has; a name that only looks numbered, or a number too long to be meant, has none."""
    names = [f"model.layers.{layer}.mlp.experts.{expert}.w1.weight" for layer in (0, 2) for expert in range(3)]
    names += ["a*b.7.c", f"x.{'9' * 5000}.y", "plain.weight"]
    groups = group_tensors(by_name([TensorInfo(name, "F32", (2, 2), 16) for name in names]))
    found = {group.pattern: group.numbers for group in groups}
    assert found == {
        "model.layers.*.mlp.experts.*.w1.weight": ((0, 3), (2, 3)),
        "a*b.*.c": (),
        "x.*.y": (),
        "plain.weight": (),
    }


WORDS = st.sampled_from(
    ["layers", "10", "9", "0", "fc1", "fc2", "expert_3", "expert_12", "w", "²", "experts", "norm", "٣", ""]
)
SOME_NAMES = st.lists(WORDS, min_size=1, max_size=4).map(".".join) | st.text(max_size=6)
TENSORS = st.lists(
    st.builds(
        TensorInfo,
        SOME_NAMES,
        st.sampled_from(["BF16", "F8_E8M0"]),
        st.sampled_from([(2, 3), (6,), ()]),
        st.integers(1, 9),
    ),
    max_size=12,
)


@given(tensors=TENSORS, held=st.sampled_from(["plainly", "each"]))
def test_groups_are_those_of_one_tensor_after_another(tensors: list[TensorInfo], held: str) -> None:
    """Putting alike names together first changes nothing: the groups are those that looking at each tensor alone finds, names counted once."""

    class Each:
        """Has something else to say of every name."""

        def __call__(self, tensor: TensorInfo) -> Held:
            return Held(parameters=len(tensor.name) % 3)

        def told_apart(self, alike: Sequence[TensorInfo]) -> Iterable[tuple[Held, Sequence[TensorInfo]]]:
            return [(self(tensor), (tensor,)) for tensor in alike]

    def extra_of(name: str) -> str | None:
        return "mtp" if name.startswith("layers.10") else None

    held_by = PLAINLY if held == "plainly" else Each()
    alone: Counter[tuple[object, ...]] = Counter()
    stored: Counter[tuple[object, ...]] = Counter()
    for tensor in {tensor.name: tensor for tensor in reversed(tensors)}.values():
        own = held_by(tensor)
        each = own.parameters or 0
        key = (pattern_of(tensor.name), tensor.dtype, tensor.shape, each, own.is_scale, extra_of(tensor.name))
        alone[key] += 1
        stored[key] += tensor.stored_bytes
    groups = group_tensors(
        by_name(tensors), extras_of=lambda names: [extra_of(name) for name in names], held_by=held_by
    )
    found = {
        (
            group.pattern,
            group.dtype,
            group.shape,
            (group.parameters or 0) // group.count,
            group.kind == "scale",
            group.extra,
        ): group
        for group in groups
    }
    assert {key: group.count for key, group in found.items()} == alone
    assert {key: group.stored_bytes for key, group in found.items()} == stored
    assert len(found) == len(groups)
