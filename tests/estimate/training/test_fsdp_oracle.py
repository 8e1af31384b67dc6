"""FSDP's shards against real `fully_shard` and `FullyShardedDataParallel` objects on a process group without peers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from hubaudit.estimate.training.fsdp import cut
from hubaudit.estimate.training.setting import settle_training
from hubaudit.estimate.training.states import standing
from hubaudit.facts.model import understand
from hubaudit.types import RepoSnapshot, Workload

pytestmark = pytest.mark.oracle

#: Sizes that few numbers of processes divide.
_CONFIG: dict[str, Any] = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 60, "intermediate_size": 130, "num_attention_heads": 6,
    "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 101, "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
_PROCESSES = (2, 3, 7, 8)
#: In a process of its own: a process group cannot be made twice with different sizes in one.
_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist, transformers
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils._python_dispatch import TorchDispatchMode
class Collectives(TorchDispatchMode):
    # elements of the larger tensor of each collective: what is gathered, and what is reduced
    def __init__(self):
        super().__init__()
        self.whole = {"gather": set(), "reduce": set()}
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        if "gather" in name or "reduce_scatter" in name:
            flat = [one for part in args for one in (part if isinstance(part, (list, tuple)) else [part])]
            flat = [one for part in flat for one in (part if isinstance(part, (list, tuple)) else [part])]
            sizes = [one.untyped_storage().nbytes() // one.element_size() for one in flat if isinstance(one, torch.Tensor)]
            self.whole["reduce" if "reduce" in name else "gather"].add(max(sizes))
        return func(*args, **(kwargs or {}))
def step(model):
    ids = torch.zeros(1, 8, dtype=torch.long)
    with Collectives() as seen:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return {name: sorted(sizes) for name, sizes in seen.whole.items()}
config, found = json.loads(sys.argv[1]), {}
for processes in json.loads(sys.argv[2]):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    mesh = torch.distributed.init_device_mesh("cpu", (processes,))
    def build():
        made = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
        return transformers.Qwen2ForCausalLM(made)
    two = build()
    for layer in two.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(two, mesh=mesh)
    states = [m._get_fsdp_state() for m in (*two.model.layers, two)]
    shards = sum(p._sharded_param_data.numel() for s in states for g in s._fsdp_param_groups for p in g.fsdp_params)
    one = FullyShardedDataParallel(build(), device_id=torch.device("cpu"), auto_wrap_policy=ModuleWrapPolicy({transformers.models.qwen2.modeling_qwen2.Qwen2DecoderLayer}))
    flats = [p.numel() for p in one.parameters()]
    found[processes] = [shards, flats, step(one), step(two)]
    dist.destroy_process_group()
print(json.dumps(found))
"""


@pytest.fixture(scope="module", name="real")
def _real() -> dict[int, list[Any]]:
    """Elements that the first of so many processes holds: under FSDP2 in all shards, under FSDP1 in each flat parameter."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(_CONFIG), json.dumps(_PROCESSES)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {int(name): value for name, value in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("processes", _PROCESSES)
def test_shards_are_those_of_torch(real: dict[int, list[Any]], processes: int) -> None:
    """Every parameter padded along its first dimension (FSDP2); one flat parameter for a layer and one for the rest (FSDP1)."""
    facts = understand(
        RepoSnapshot(repo_id="made/up", revision=None, commit=None, source="local", configs={"config.json": _CONFIG})
    )
    held = standing(facts, settle_training(facts, Workload(mode="train", recipe="fp32")))
    assert held is not None
    shards, flats, *_ = real[processes]
    assert cut(facts, held, 2, processes).base_shard_elements == shards
    assert len(flats) == _CONFIG["num_hidden_layers"] + 1
    assert cut(facts, held, 1, processes).base_shard_elements == sum(flats)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("processes", _PROCESSES)
def test_buffers_are_those_of_torch(real: dict[int, list[Any]], processes: int, version: int) -> None:
    """A step of the real objects: a layer and the root are gathered whole, and their gradients reduced, in buffers of exactly so many elements."""
    facts = understand(
        RepoSnapshot(repo_id="made/up", revision=None, commit=None, source="local", configs={"config.json": _CONFIG})
    )
    held = standing(facts, settle_training(facts, Workload(mode="train", recipe="fp32")))
    assert held is not None
    made, seen = cut(facts, held, version, processes), real[processes][1 + version]
    assert seen["gather"] == sorted({made.unit_elements, made.root_elements})
    assert seen["reduce"] == sorted({made.padded_gradient_elements, made.root_elements})
