"""Each device's parameters are those that transformers leaves on it: its own plans, applied to a model on the meta device under a fake process group."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import made

from hubaudit.estimate.split.layout import Split, SplitError, places
from hubaudit.estimate.split.share import check, facts_on
from hubaudit.facts.repository import understand

if TYPE_CHECKING:
    from hubaudit.types import ModelFacts

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # the libraries warn each other
SMALL: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 64, "intermediate_size": 100, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 101},
    "qwen2": {"hidden_size": 64, "intermediate_size": 90, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 99, "tie_word_embeddings": True},
    "qwen3": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 130},
    "phi3": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 128, "pad_token_id": 0},
    "gemma2": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 128},
    "mixtral": {"hidden_size": 64, "intermediate_size": 50, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 128, "num_local_experts": 8},
    "qwen3_moe": {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 40, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 128, "num_experts": 8},
    "deepseek_v3": {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 24, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 128, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 2},
    "qwen3_next": {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 128, "num_experts": 8, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
}  # fmt: skip
LAYERS = 7
SPLITS = [
    Split(tensor=2),
    Split(tensor=4),
    Split(pipeline=3),
    Split(tensor=2, pipeline=2),
    Split(tensor=2, expert=2),
    Split(tensor=4, expert=4),
]


def model(model_type: str) -> Any:
    """A model of that type with few and narrow layers, on the meta device."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, num_hidden_layers=LAYERS, **SMALL[model_type])
    config.dtype = torch.float32
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def facts_of(whole: Any) -> ModelFacts:
    """The facts of that model, from its config and the names and shapes of its parameters."""
    config = whole.config.to_dict() | {"architectures": [type(whole).__name__]}
    return understand(made(config, {name: ("F32", tuple(tensor.shape)) for name, tensor in whole.named_parameters()}))


def on_one(model_type: str, split: Split, rank: int) -> int:
    """Parameters that transformers leaves on one device."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers.distributed import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism
    from transformers.distributed.pipeline_parallel import PipelineIdentityLayer, apply_pipeline_parallelism
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    dist.init_process_group("fake", rank=rank, world_size=split.devices, store=FakeStore())
    try:
        cut = model(model_type)
        mesh = init_device_mesh("cpu", (split.pipeline, split.tensor), mesh_dim_names=("pp", "tp"))
        asked = DistributedConfig(tp_size=split.tensor, pp_size=split.pipeline, ep_size=split.expert)
        tensor_plan, expert_plan, _ = cut._resolve_parallel_plans(asked)
        if split.pipeline > 1:
            apply_pipeline_parallelism(cut, mesh["pp"])
        if split.tensor > 1:
            modules = {name for name, one in cut.named_modules() if not isinstance(one, PipelineIdentityLayer)}
            known = modules | dict(cut.named_parameters()).keys()  # a tied weight once
            apply_tensor_parallelism(
                cut, mesh["tp"], {name: style for name, style in tensor_plan.items() if name in known}
            )
        if split.expert > 1:
            apply_expert_parallelism(cut, mesh["tp"], mesh["tp"], expert_plan)
        if cut.config.tie_word_embeddings and rank // split.tensor == split.pipeline - 1:
            cut.lm_head.weight = cut.model.embed_tokens.weight  # as loading ties them at its end
        local = (one.to_local() if isinstance(one, DTensor) else one for one in cut.parameters())
        return sum(one.numel() for one in local)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("model_type", "split"),
    list(product(SMALL, SPLITS)),
    ids=lambda value: value if isinstance(value, str) else value.label,
)
def test_every_device_holds_what_transformers_leaves_it(model_type: str, split: Split) -> None:
    """Parameters of each rank, equal to the last one: uneven vocabularies, widths and stages among them."""
    facts = facts_of(model(model_type))
    try:
        check(facts, split, "transformers")
    except SplitError:
        pytest.skip("refused by both")
    for place in places(split):
        share = facts_on(facts, split, place, "transformers").parameters
        assert share is not None
        assert share.loaded == on_one(model_type, split, place.device), place
