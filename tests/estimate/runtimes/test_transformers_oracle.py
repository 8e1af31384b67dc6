"""The library's own cache classes, fed with tensors, hold what the estimates say: static ones on meta, quantized ones on the CPU."""

from __future__ import annotations

import copy
import importlib
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fixture_models import facts_of, snapshot_of

from hubaudit.estimate.infer import estimate
from hubaudit.types import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.oracle

STATIC = [
    "qwen2-0.5b-instruct",
    "gemma-2-2b-it",
    "gemma-3-4b-it",
    "gpt-oss-20b",
    "mistral-7b-v0.1",
    "phi-3-mini-4k-instruct",
    "deepseek-v2-lite",
    "lfm2-1.2b",
    "falcon-7b-instruct",
    "gpt2",
    "qwen3-next-80b-a3b-instruct",
]
#: (prompt, new, max_cache_len): within every window, beyond some, beyond all, and sized for more.
LENGTHS = [(40, 9, None), (40, 9, 700), (40, 9, 4200), (40, 9, 9000)]


def tensors_of(held: Any) -> Iterator[Any]:
    """Every plain tensor inside lists, mappings and tensor subclasses; numbers of bookkeeping have no dimension."""
    import torch

    if isinstance(held, torch.Tensor):
        if type(held) is not torch.Tensor and hasattr(held, "__tensor_flatten__"):
            for name in held.__tensor_flatten__()[0]:
                yield from tensors_of(getattr(held, name))
        else:
            yield held
    elif isinstance(held, dict):
        for item in held.values():
            yield from tensors_of(item)
    elif isinstance(held, tuple | list):
        for item in held:
            yield from tensors_of(item)


def bytes_of(held: Any) -> int:
    """Bytes of the distinct tensors."""
    found = {id(tensor): tensor.numel() * tensor.element_size() for tensor in tensors_of(held)}
    return sum(found.values())


def unpacked(packed: Any, bits: int) -> Any:
    """The values of ``bits`` bits in a tensor of bytes, lowest first."""
    import torch

    return torch.cat([(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)])


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.filterwarnings("ignore")
def test_static_caches_are_what_the_library_allocates(name: str) -> None:
    """A real forward pass of the real model on meta into a StaticCache, at several lengths: equal to the byte."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    logging.disable(logging.WARNING)
    raw = copy.deepcopy(dict(snapshot_of(name).configs["config.json"]))
    config = transformers.CONFIG_MAPPING[raw["model_type"]].from_dict(raw).get_text_config(decoder=True)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for prompt, new, longest in LENGTHS:
        cache = transformers.StaticCache(config=config, max_cache_len=max(prompt + new - 1, longest or 0))
        with torch.no_grad():
            ids = torch.zeros((2, prompt), dtype=torch.long, device="meta")
            model(input_ids=ids, past_key_values=cache, use_cache=True)
        held = sum(
            bytes_of([getattr(layer, part, None) for part in ("keys", "values", "conv_states", "recurrent_states")])
            for layer in cache.layers
        )
        asked = Workload(
            mode="kv",
            dtype="bf16",
            cache="static",
            batch_size=2,
            prompt_tokens=prompt,
            new_tokens=new,
            max_cache_len=longest,
        )
        assert estimate(facts_of(name), asked).total_bytes == held


@pytest.mark.parametrize(
    ("kv_dtype", "backend", "options"),
    [("int4", "quanto", {}), ("int2", "quanto", {"nbits": 2}), ("int8", "hqq", {"nbits": 8}), ("fp8", "fp8", {})],
)
@pytest.mark.parametrize(("batch", "prompt"), [(1, 33), (3, 129)])
@pytest.mark.filterwarnings("ignore")
def test_quantized_caches_are_what_the_backends_pack(
    monkeypatch: pytest.MonkeyPatch, kv_dtype: str, backend: str, options: dict[str, int], batch: int, prompt: int
) -> None:
    """Random keys and values of Qwen2-0.5B's shape through the real QuantizedCache, step by step: the largest so far is the estimate."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if backend != "fp8":
        pytest.importorskip({"quanto": "optimum.quanto", "hqq": "hqq"}[backend])
    if backend == "quanto":  # unpacking in Python, instead of an extension that it would compile for minutes
        cpp = importlib.import_module("optimum.quanto.library.extensions.cpp")
        monkeypatch.setattr(cpp.ext, "_lib", SimpleNamespace(unpack=unpacked))
    from transformers.cache_utils import QuantizedCache

    facts = facts_of("qwen2-0.5b-instruct")
    layers, heads, width = 24, 2, 64
    config = transformers.Qwen2Config(
        num_hidden_layers=1, hidden_size=128, num_attention_heads=2, num_key_value_heads=heads, head_dim=width
    )
    cache = QuantizedCache(backend, config, **options)
    largest = 0
    for new in range(261):
        tokens = prompt if new == 0 else 1
        keys = torch.randn(batch, heads, tokens, width, dtype=torch.bfloat16)
        cache.update(keys, keys.clone(), 0)
        layer = cache.layers[0]
        plain = [] if backend == "fp8" else [layer.keys, layer.values]
        held = bytes_of([layer._quantized_keys, layer._quantized_values, *plain])
        largest = max(largest, held)
        if new % 13 == 0 or new in (127, 128, 129, 255, 256, 257):
            asked = Workload(
                mode="kv", kv_dtype=kv_dtype, batch_size=batch, prompt_tokens=prompt, new_tokens=new, dtype="bf16"
            )
            made_of = estimate(facts, asked)
            part = next(item for item in made_of.components if item.id == "kv_cache")
            assert part.bytes == layers * largest, (new, part.formula)
