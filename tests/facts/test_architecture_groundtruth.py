"""Geometry of odd architectures as vLLM's own test suite has it, where the corpus has the model's configuration."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from fixture_models import made

from hubaudit.facts.model import understand

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
TABLE = CORPUS / "vllm_arch_groundtruth.tsv"
#: Configurations that the corpus has of a sibling with the same architecture and size.
SIBLINGS = {
    "lmsys/gpt-oss-20b-bf16": "openai/gpt-oss-20b",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-ai/DeepSeek-V3.2",
    "XiaomiMiMo/MiMo-7B-RL": "XiaomiMiMo/MiMo-7B-Base",
}
#: Rows without a configuration in the corpus: nothing to read.
NO_CONFIG = {
    "mistralai/Mamba-Codestral-7B-v0.1",
    "tiiuae/falcon-mamba-7b-instruct",
    "Zyphra/Zamba2-7B-instruct",
    "zai-org/GLM-4.5",
    "meituan-longcat/LongCat-Flash-Chat",
}

pytestmark = pytest.mark.skipif(not TABLE.exists(), reason="the corpus of published figures is not beside the project")


def rows() -> list[list[str]]:
    """vllm-project/vllm tests/config/base_model_arch_groundtruth.json at 1ac8cdb4: model, hidden, layers, heads, head size, kv heads, vocabulary, experts, MLA."""
    if not TABLE.exists():
        return []
    with TABLE.open(encoding="utf-8") as stream:
        return [row for row in csv.reader(stream, delimiter="\t") if row and not row[0].startswith("#")]


def config_of(model: str) -> Path:
    """Where the corpus has the configuration of a model, or of its sibling."""
    return CORPUS / "configs" / SIBLINGS.get(model, model).replace("/", "__") / "config.json"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_geometry_is_the_published_one(row: list[str]) -> None:
    """Hidden size, layers, heads, key and value heads, head size, vocabulary and experts; a latent's width where attention is latent."""
    model, hidden, layers, heads, head_size, kv_heads, vocab, experts, latent = row
    path = config_of(model)
    if not path.exists():
        assert model in NO_CONFIG
        pytest.skip("no configuration in the corpus")
    facts = understand(made(json.loads(path.read_text(encoding="utf-8"))))
    assert facts.hidden_size.value == int(hidden)
    assert facts.layers.value == int(layers)
    assert facts.attention_heads.value == int(heads)
    assert facts.kv_heads.value == int(kv_heads)
    assert facts.vocab_size.value == int(vocab)
    found_experts = None if facts.moe is None else facts.moe.experts.value
    assert found_experts == (None if experts == "-" else int(experts))
    if latent == "MLA":
        kept = {tensor.name: tensor.elements_per_token for tensor in (facts.layer_plan or ())[0].tensors}
        assert kept["latent"] + kept["rotary_key"] == int(head_size)
    else:
        assert facts.head_dim.value == int(head_size)
