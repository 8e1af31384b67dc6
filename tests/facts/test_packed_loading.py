"""What transformers makes of packed weights: the table names every method, and the estimate says what becomes of them."""

from __future__ import annotations

import pytest
from packed_checkpoints import gptq, plain, snapshot, tensor

from hubaudit.data import table
from hubaudit.estimate.infer import estimate
from hubaudit.facts.repository import understand
from hubaudit.types import ModelFacts, Workload

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "float16"}
#: One matrix of 64 × 128, and an embedding that the file holds in fp32.
VALUES = 64 * 128
EMBEDDING = tensor("model.embed_tokens.weight", "F32", 10, 128)


def made(method: dict[str, object], *tensors: object) -> ModelFacts:
    """The facts of a repository of these tensors and the embedding."""
    found = snapshot([EMBEDDING, *tensors], {**CONFIG, "quantization_config": method})  # type: ignore[list-item]
    return understand(found)


def said(facts: ModelFacts, runtime: str = "transformers") -> tuple[int, str]:
    """The weights at the peak, and the notes."""
    estimated = estimate(facts, Workload(prompt_tokens=1, new_tokens=1, runtime=runtime))
    return next(part.bytes for part in estimated.components if part.id == "weights"), " ".join(estimated.assumptions)


def test_every_method_that_is_unpacked_has_a_row() -> None:
    """Each spelling that a config may use for a method whose containers are understood says what a loader makes of it."""
    spelled = {name.replace("_", "-") for row in table("quantizers.toml")["method"] for name in row["called"]}
    named = [name for row in table("packed_loading.toml")["method"] for name in row["called"]]
    assert spelled <= set(named)
    assert len(named) == len(set(named))


def test_compressed_tensors_run_unpacked() -> None:
    """4-bit weights take 16 bit from the first pass on under transformers, and stay as they are under an engine with kernels; scales stay in both."""
    scheme = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}}},
    }  # fmt: skip
    name = "model.layers.0.mlp.up_proj.weight"
    facts = made(
        scheme, tensor(f"{name}_packed", "I32", 64, 16), tensor(f"{name}_scale", "F16", 64, 1), tensor(f"{name}_shape", "I64", 2)
    )  # fmt: skip
    beside = 64 * 2 + 2 * 8 + 10 * 128 * 2
    assert facts.resident_bytes == VALUES // 2 + beside
    weights, notes = said(facts)
    assert weights == VALUES * 2 + beside
    assert "unpacks every weight before the first pass" in notes
    assert said(facts, "vllm")[0] == facts.resident_bytes


def test_gptq_stays_packed() -> None:
    """Containers and scales stay; the embedding is cast to the config's fp16."""
    facts = made(
        {"quant_method": "gptq", "bits": 4, "group_size": 128}, *gptq(4, 128)("model.layers.0.mlp.up_proj", 64, 128)
    )
    packed = sum(group.stored_bytes for group in facts.tensor_groups if "embed" not in group.pattern)
    assert facts.resident_bytes == packed + 10 * 128 * 2
    assert said(facts)[0] == facts.resident_bytes


def test_bitsandbytes_leaves_weights_as_they_are() -> None:
    """Its deserializer takes every tensor called weight: the embedding stays in fp32 whatever the config says."""
    name = "model.layers.0.mlp.up_proj"
    facts = made(
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        tensor(f"{name}.weight", "I8", 64, 128),
        tensor(f"{name}.SCB", "F32", 64),
    )
    assert facts.resident_bytes == said(facts)[0] == VALUES + 64 * 4 + 10 * 128 * 4


@pytest.mark.parametrize(
    ("method", "words"),
    [("mxfp4", "kernels package"), ("fp8", "compute capability 8.9"), ("modelopt", "does not load")],
)
def test_what_it_takes_is_said(method: str, words: str) -> None:
    """Where a machine decides whether weights stay packed, or transformers has no loader at all, the notes say so."""
    facts = made({"quant_method": method}, *plain("F8_E4M3")("model.layers.0.mlp.up_proj", 64, 128))
    assert words in said(facts)[1]
