"""Optimizer states against the real optimizers of torch, transformers, bitsandbytes, torchao, galore-torch and apollo-torch, after one step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

pytestmark = pytest.mark.oracle

#: Run in a process of its own: torchao warns at import, and torch.compile must be off.
_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
dtype = getattr(torch, sys.argv[1])
shapes = [(1024, 512), (96, 640), (64, 64), (8, 16, 32), (4095,), (4096,), (4352,), (100,)]


def groups(**extra):
    hidden = [one for one in parameters if one.dim() == 2]
    return [dict(params=hidden, **extra), dict(params=[one for one in parameters if one.dim() != 2])]


def build(name):
    optim = torch.optim
    if name == "muon":
        return [optim.Muon([one for one in parameters if one.dim() == 2]), optim.AdamW([one for one in parameters if one.dim() != 2])]
    plain = {
        "adamw": lambda: optim.AdamW(parameters, fused=True), "adamw_foreach": lambda: optim.AdamW(parameters, foreach=True),
        "adamw_loop": lambda: optim.AdamW(parameters, foreach=False), "adamw_amsgrad": lambda: optim.AdamW(parameters, amsgrad=True),
        "sgd": lambda: optim.SGD(parameters), "sgd_momentum": lambda: optim.SGD(parameters, momentum=0.9),
        "rmsprop": lambda: optim.RMSprop(parameters), "adagrad": lambda: optim.Adagrad(parameters), "adamax": lambda: optim.Adamax(parameters),
        "nadam": lambda: optim.NAdam(parameters), "radam": lambda: optim.RAdam(parameters), "adadelta": lambda: optim.Adadelta(parameters),
        "adafactor_torch": lambda: optim.Adafactor(parameters),
    }
    if name in plain:
        return [plain[name]()]
    if name.startswith("adafactor"):
        from transformers.optimization import Adafactor
        return [Adafactor(parameters, scale_parameter=False, relative_step=False, lr=1e-3, beta1=0.9 if "beta1" in name else None)]
    if name == "lion":
        from lion_pytorch import Lion
        return [Lion(parameters)]
    if "_ao_" in name:
        from torchao.optim import AdamW4bit, AdamW8bit
        return [{"adamw_ao_8bit": AdamW8bit, "adamw_ao_4bit": AdamW4bit}[name](parameters)]
    if name.startswith("galore"):
        from galore_torch import GaLoreAdafactor, GaLoreAdamW
        made = {"galore_adamw": GaLoreAdamW, "galore_adafactor": GaLoreAdafactor}[name]
        return [made(groups(rank=128, update_proj_gap=200, scale=0.25, proj_type="std"))]
    if name.startswith("apollo"):
        from apollo_torch import APOLLOAdamW
        rank = 1 if name == "apollo_mini" else 128
        return [APOLLOAdamW(groups(rank=rank, proj="random", scale_type="channel", scale=1, update_proj_gap=200, proj_type="std"))]
    import bitsandbytes.optim as bnb
    names = {"adamw_32bit": bnb.AdamW, "lion_32bit": bnb.Lion, "lamb": bnb.LAMB, "lars": bnb.LARS, "ademamix": bnb.AdEMAMix,
             "rmsprop_32bit": bnb.RMSprop, "adamw_8bit": bnb.AdamW8bit, "lion_8bit": bnb.Lion8bit, "rmsprop_8bit": bnb.RMSprop8bit,
             "sgd_8bit": bnb.SGD8bit, "adagrad_8bit": bnb.Adagrad8bit, "ademamix_8bit": bnb.AdEMAMix8bit, "lamb_8bit": bnb.LAMB8bit}
    extra = {"momentum": 0.9, "lr": 1e-3} if name in ("lars", "sgd_8bit") else {}
    return [names[name](parameters, **extra)]


def count(value, seen):
    if isinstance(value, torch.Tensor) and type(value) is not torch.Tensor and hasattr(value, "__tensor_flatten__"):
        return sum(count(getattr(value, inner), seen) for inner in value.__tensor_flatten__()[0])
    if isinstance(value, torch.Tensor):
        key = value.untyped_storage()._cdata
        if value.numel() == 1 or key in seen:  # step counters and norms are no states of the parameters
            return 0
        seen.add(key)
        return value.numel() * value.element_size()
    return sum(count(inner, seen) for inner in vars(value).values()) if hasattr(value, "__dict__") else 0


found = {}
for name in sys.argv[2:]:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(*shape).to(dtype)) for shape in shapes]
    for one in parameters:
        one.grad = torch.randn_like(one)
    try:
        made = build(name)
    except ModuleNotFoundError as error:
        found[name] = error.name
        continue
    for one in made:
        one.step()
    seen = set()
    found[name] = sum(count(value, seen) for one in made for state in one.state.values() for value in state.values())
print(json.dumps(found))
"""
#: Paged ones ask CUDA for managed memory and cannot run here; their states are those of the plain ones.
_PAGED = "paged_"
_SHAPES = [(1024, 512), (96, 640), (64, 64), (8, 16, 32), (4095,), (4096,), (4352,), (100,)]
_DTYPES = {"float32": 32, "bfloat16": 16}
#: bitsandbytes' 8-bit SGD and RMSprop, and GaLore's decomposition, refuse bf16.
_FLOAT32_ONLY = (
    "sgd_8bit",
    "rmsprop_8bit",
    "adagrad_8bit",
    "lamb_8bit",
    "galore_adamw",
    "galore_adafactor",
    "apollo",
    "apollo_mini",
)


def _names(dtype: str) -> list[str]:
    from hubaudit.estimate.training.optimizers import optimizer_names

    names = [name for name in optimizer_names() if not name.startswith(_PAGED)]
    return [name for name in names if dtype == "float32" or name not in _FLOAT32_ONLY]


@cache
def _measured(dtype: str) -> dict[str, int | str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, dtype, *_names(dtype)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int | str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("dtype", "name"), [(dtype, name) for dtype in _DTYPES for name in _names(dtype)])
def test_states_are_those_of_the_real_optimizer(dtype: str, name: str) -> None:
    """Byte for byte over matrices, a 3-D tensor, and vectors on both sides of 4,096 elements."""
    from hubaudit.estimate.component import given
    from hubaudit.estimate.training.optimizers import optimizer_named, state_component
    from hubaudit.estimate.training.tensors import Trained

    pytest.importorskip("torch")
    pytest.importorskip("bitsandbytes")
    truth = _measured(dtype)[name]
    if isinstance(truth, str):
        pytest.skip(f"{truth} is not installed")
    tensors = [Trained(role="mlp", shape=shape, count=1) for shape in _SHAPES]
    assert state_component(tensors, optimizer_named(name), given(_DTYPES[dtype], "test")).bytes == truth
