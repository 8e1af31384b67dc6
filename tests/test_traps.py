"""Traps that real repositories hold, each as one small repository; the comment says where it was seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from shapes import BASE, MODEL, Files, as_json, cut
from small_repos import CONFIG, INDEX, PARAMETERS
from weight_bytes import Tensors, safetensors

from hubaudit.auditing import audit_snapshot
from hubaudit.hub import fetch
from hubaudit.types import Report, Workload

if TYPE_CHECKING:
    from pathlib import Path


def audited(files: Files, folder: Path) -> Report:
    """The audit of these files, in a folder, with a licence beside them."""
    for path, content in {"LICENSE": b"Apache-2.0", **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return audit_snapshot(fetch(str(folder)), Workload())


def rules(report: Report) -> set[str]:
    """The rules of all findings."""
    return {finding.rule for finding in report.findings}


def sharded(**changes: Any) -> Files:
    """Three shards, whose index is changed."""
    files: Files = {"config.json": as_json(CONFIG), **cut(MODEL, "model", 3, safetensors, "safetensors")}
    index = json.loads(files[INDEX])
    for key, value in changes.items():
        index[key] = value
    return {**files, INDEX: as_json(index)}


@pytest.mark.parametrize(
    ("total", "is_wrong"),
    [
        (0, True),  # nvidia/Cosmos-Reason2-8B: 0, while its shards hold 17,534,339,368 bytes
        (float(2 * PARAMETERS), False),  # togethercomputer/RedPajama-INCITE-7B-Base: 13731385408.0
        (2 * PARAMETERS + 1, True),
        (0.5, False),  # no whole number is no claim
        (None, False),
        ("many", False),
    ],
)
def test_total_size(total: Any, is_wrong: bool, tmp_path: Path) -> None:
    """The shards' headers are what counts; a claim that is another number is a finding, and one that is no number is none."""
    report = audited(sharded(metadata={"total_size": total}), tmp_path)
    assert report.facts.parameters is not None
    assert (report.facts.parameters.total, report.facts.stored_bytes) == (PARAMETERS, 2 * PARAMETERS)
    assert ("index-total-size" in rules(report)) == is_wrong


def test_an_index_with_something_behind_it(tmp_path: Path) -> None:
    """A copy of bigscience/bloom's index: the index cannot be used, the shards can."""
    files = sharded()
    report = audited({**files, INDEX: files[INDEX] + b"\n<<<<<<< HEAD"}, tmp_path)
    assert report.facts.parameters is not None
    assert report.facts.parameters.total == PARAMETERS
    assert [finding.where for finding in report.findings] == [INDEX]


@pytest.mark.parametrize(
    ("spelling", "count"),
    [
        ("model-{:05}-of-000163", 163),
        ("model_{:05}-of-00072", 72),
        ("model-{}-of-62", 62),
        ("model.safetensors-{:05}-of-00094", 94),
    ],
)
def test_odd_shard_names(spelling: str, count: int, tmp_path: Path) -> None:
    """DeepSeek-V3, bigscience/bloom, Kimi-K2, Qwen3.5: with or without an index they are one model; a missing one is named as its sisters."""
    names = [f"{spelling.format(number)}.safetensors" for number in range(1, count + 1)]
    tensors = list(MODEL.items())
    files = {"config.json": as_json(CONFIG)}
    for at, name in enumerate(names):
        files[name] = (
            safetensors(dict(tensors[at : at + 1]))
            if at < len(tensors)
            else safetensors({f"empty.{at}": ("BF16", (0,))})
        )
    report = audited(files, tmp_path / "whole")
    assert report.facts.parameters is not None
    assert report.facts.parameters.total == PARAMETERS
    assert len(report.facts.chosen[0].files) == count
    del files[names[1]]
    lacking = audited(files, tmp_path / "lacking")
    assert [finding.where for finding in lacking.findings] == [names[1]]


def test_an_index_that_names_shards_that_are_not_there(tmp_path: Path) -> None:
    """The missing one is named; what the config implies stands in for the sum."""
    files = sharded()
    del files["model-00002-of-00003.safetensors"]
    report = audited(files, tmp_path)
    assert [finding.where for finding in report.findings if finding.rule == "missing-shard"] == [
        "model-00002-of-00003.safetensors"
    ]
    assert report.facts.parameters is not None
    assert report.facts.parameters.where.startswith("rule:")
    assert report.facts.stored_bytes is None


@pytest.mark.parametrize(
    "path",
    ["../outside.safetensors", "/etc/passwd", "a/../../b.safetensors", "https://elsewhere/x", "x\\y", "a\nb", ""],
)
def test_an_index_that_names_paths_outside(path: str, tmp_path: Path) -> None:
    """Such an index is not used at all, and nothing outside is opened."""
    (tmp_path / "outside.safetensors").write_bytes(safetensors({"secret": ("F32", (1000,))}))
    names = dict.fromkeys(MODEL, path)
    report = audited(sharded(weight_map=names), tmp_path / "repo")
    assert report.facts.parameters is not None
    assert report.facts.parameters.total == PARAMETERS
    assert INDEX in {finding.where for finding in report.findings}


# The shape of deepseek-ai/DeepSeek-V2-Lite, as its config.json gives it.
V2_LITE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
    "n_routed_experts": 64, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "max_position_embeddings": 163840,
}  # fmt: skip


def test_an_explicit_null_is_no_default(tmp_path: Path) -> None:
    """DeepSeek-V2-Lite has 15,706,484,224 parameters; the copy that drops ``"q_lora_rank": null`` gains 42,508,800, and that is said."""
    said = audited({"config.json": as_json(V2_LITE)}, tmp_path / "said")
    dropped = audited(
        {"config.json": as_json({key: value for key, value in V2_LITE.items() if key != "q_lora_rank"})},
        tmp_path / "dropped",
    )
    assert said.facts.parameters is not None
    assert dropped.facts.parameters is not None
    assert said.facts.parameters.total == 15_706_484_224
    assert dropped.facts.parameters.total - said.facts.parameters.total == 42_508_800
    assert any("leaves to its class" in gap and "q_lora_rank" in gap for gap in dropped.facts.missing)
    assert not any("q_lora_rank" in gap for gap in said.facts.missing)


def test_a_wrong_model_type_at_the_top(tmp_path: Path) -> None:
    """A preset of Ministral-3-3B (mlc) says ``ministral3`` where ``mistral3`` belongs: transformers would ignore text_config and build 7.95 B parameters."""
    config = {
        "model_type": "ministral3",
        "architectures": ["Mistral3ForConditionalGeneration"],
        "text_config": {**CONFIG, "model_type": "ministral3"},
    }
    report = audited({"config.json": as_json(config)}, tmp_path / "wrong")
    (finding,) = [finding for finding in report.findings if finding.rule == "config-section-unread"]
    assert finding.severity == "error"
    right = audited({"config.json": as_json({**config, "model_type": "mistral3"})}, tmp_path / "right")
    assert "config-section-unread" not in rules(right)


def test_a_config_that_lies_about_dtype(tmp_path: Path) -> None:
    """mattshumer/Reflection-Llama-3.1-70B: fp32 files, bfloat16 in the config: twice the bytes on disk of what is loaded, and a finding."""
    tensors: Tensors = {name: ("F32", shape) for name, (_, shape) in MODEL.items()}
    report = audited({**BASE, "model.safetensors": safetensors(tensors)}, tmp_path)
    assert (report.facts.stored_bytes, report.facts.resident_bytes) == (4 * PARAMETERS, 2 * PARAMETERS)
    assert "dtype-mismatch" in rules(report)
    weights = next(part.bytes for part in report.estimate.components if part.id == "weights")
    assert weights == report.facts.resident_bytes


def test_a_config_of_another_model(tmp_path: Path) -> None:
    """A folder called google-flan-t5-small holds the config of codet5-small: the files' shapes are the second witness."""
    report = audited({**BASE, "config.json": as_json({**CONFIG, "hidden_size": 64, "num_hidden_layers": 6})}, tmp_path)
    assert {"layer-count-mismatch", "hidden-size-mismatch"} <= rules(report)


def test_one_model_stored_twice_under_other_names_is_not_two(tmp_path: Path) -> None:
    """decapoda-research/llama-7b-hf and many others keep twins: bytes of one of them are the model's, the other's are named."""
    files = {**sharded(), "pytorch_model.bin": b"PK"}
    report = audited(files, tmp_path)
    assert report.facts.parameters is not None
    assert report.facts.parameters.total == PARAMETERS
    assert [(one.format, one.size_bytes) for one in report.facts.other_weights] == [("torch", 2)]
    assert rules(report) == {"duplicate-weights"}
