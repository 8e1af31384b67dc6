"""Every rule: a repository that sets it off, and one like it that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from local_hub import LocalRepo, safetensors_prefix
from shapes import BASE, MODEL, SHAPES, Files, adapter, as_json, cut
from small_repos import CONFIG, INDEX, PARAMETERS, TENSORS, asked, one_file
from weight_bytes import Tensors, safetensors, torch

import hubaudit.findings as findings_room
from hubaudit.auditing import audit_snapshot
from hubaudit.findings import rules
from hubaudit.hub import fetch
from hubaudit.types import Finding, Terms, Workload

if TYPE_CHECKING:
    from local_hub import LocalHub

PACKAGE = Path(findings_room.__file__).parent
CARD = "---\nlicense: apache-2.0\n---\n# A model\n"


def lay_out(files: Files, folder: Path) -> str:
    """The files in a folder."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return str(folder)


def found(files: Files, folder: Path) -> list[Finding]:
    """What an audit of these files finds. Where no card is given, one with a licence is there."""
    files = {"README.md": CARD.encode(), **files}
    return list(audit_snapshot(fetch(lay_out(files, folder)), Workload()).findings)


def with_config(**changes: Any) -> Files:
    """The small Llama with another config."""
    return {**BASE, "config.json": as_json({**CONFIG, **changes})}


def with_card(text: str) -> Files:
    """The small Llama with a card."""
    return {**BASE, "README.md": (CARD + text).encode()}


def shards(**changes: Any) -> Files:
    """Three shards, whose index is changed."""
    files: Files = {"config.json": as_json(CONFIG), **cut(MODEL, "model", 3, safetensors, "safetensors")}
    return {**files, INDEX: as_json({**json.loads(files[INDEX]), **changes})}


def without(files: Files, *paths: str) -> Files:
    """The same files but these."""
    return {path: content for path, content in files.items() if path not in paths}


AS_FLOAT32: Tensors = {name: ("F32", shape) for name, (_, shape) in MODEL.items()}
NO_HEAD: Tensors = {name: row for name, row in MODEL.items() if not name.startswith("lm_head")}
PACKED: Tensors = {
    **{name: row for name, row in MODEL.items() if "_proj" not in name},
    **{f"model.layers.{n}.mlp.down_proj.{part}": row for n in range(4)
       for part, row in (("qweight", ("I32", (8, 32))), ("qzeros", ("I32", (1, 4))), ("scales", ("F16", (1, 32))), ("g_idx", ("I32", (64,))))},
}  # fmt: skip
TOKENIZER = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 99}}, "added_tokens": [{"id": 127, "content": "<x>"}]}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64}

#: rule → what sets it off, what is like it and does not, and where it is found.
CASES: dict[str, tuple[Files, Files, str]] = {
    "card-context": (with_card("- **Context Length:** 4,096 tokens\n"), with_card("- **Context Length:** 256 tokens\n"), "README.md"),
    "card-memory": (with_card("Inference needs at least 0.01 MB of VRAM.\n"), with_card("Inference needs at least 1 GB of VRAM.\n"), "README.md"),
    "card-parameters": (with_card("- Number of parameters: 7B\n"), with_card(f"- Number of parameters: {PARAMETERS:,}\n"), "README.md"),
    "card-precision": (with_card("| Tensor type | FP32 |\n|---|---|\n| Precision | float32 |\n"), with_card("| a | b |\n|---|---|\n| Precision | bfloat16 |\n"), "README.md"),
    "config-section-unread": (with_config(text_config={"hidden_size": 32}), with_config(generation_config={"hidden_size": 32}), "config.json#text_config"),
    "dtype-mismatch": ({**BASE, "model.safetensors": safetensors(AS_FLOAT32)}, BASE, "config.json#torch_dtype"),
    "duplicate-weights": ({**BASE, "pytorch_model.bin": torch(MODEL)}, {**BASE, "model.fp16.safetensors": safetensors(MODEL)}, "pytorch_model.bin"),
    "head-shape-mismatch": (with_config(num_key_value_heads=4), BASE, "config.json#num_key_value_heads"),
    "hidden-size-mismatch": (with_config(hidden_size=64), BASE, "config.json#hidden_size"),
    "index-total-size": (shards(metadata={"total_size": 1}), shards(), f"{INDEX}#metadata.total_size"),
    "index-weight-map": (shards(weight_map={**json.loads(shards()[INDEX])["weight_map"], "nowhere": "model-00001-of-00003.safetensors"}), shards(), f"{INDEX}#weight_map"),
    "layer-count-mismatch": (with_config(num_hidden_layers=5), BASE, "config.json#num_hidden_layers"),
    "licence-missing": ({**BASE, "README.md": b"# no header\n"}, {**BASE, "README.md": b"# no header\n", "LICENSE.md": b"MIT"}, "README.md#license"),
    "missing-shard": (without(shards(), "model-00002-of-00003.safetensors"), shards(), "model-00002-of-00003.safetensors"),
    "no-safetensors": (SHAPES["bin"], SHAPES["twins"], "pytorch_model.bin"),
    "quantization-mismatch": (with_config(quantization_config=GPTQ), {"config.json": as_json({**CONFIG, "quantization_config": GPTQ}), "model.safetensors": safetensors(PACKED)}, "config.json#quantization_config"),
    "remote-code": (with_config(auto_map={"AutoModelForCausalLM": "modeling_x.XForCausalLM"}), with_config(auto_map={}), "config.json#auto_map"),
    "rope-context": (with_config(rope_scaling=YARN, max_position_embeddings=512), with_config(rope_scaling=YARN), "config.json#rope_scaling"),
    "suspicious-pickle": ({"config.json": BASE["config.json"], "pytorch_model.bin": torch(MODEL, names=("os", "system"))}, SHAPES["bin"], "pytorch_model.bin"),
    "tokenizer-beyond-embeddings": ({**BASE, "tokenizer.json": as_json({**TOKENIZER, "added_tokens": [{"id": 128}]})}, {**BASE, "tokenizer.json": as_json(TOKENIZER)}, "tokenizer.json#added_tokens"),
    "tokenizer-max-length": ({**BASE, "tokenizer_config.json": as_json({"model_max_length": 512})}, {**BASE, "tokenizer_config.json": as_json({"model_max_length": int(1e30)})}, "tokenizer_config.json#model_max_length"),
    "truncated-file": ({**BASE, "model.safetensors": BASE["model.safetensors"][:-1]}, BASE, "model.safetensors"),
    "tying-mismatch": ({**BASE, "model.safetensors": safetensors(NO_HEAD)}, BASE, "config.json#tie_word_embeddings"),
    "unpinned-revision": (with_config(auto_map={"AutoModel": "org/other--modeling_x.X"}), with_config(auto_map={"AutoModel": "modeling_x.X"}), "config.json#auto_map"),
    "unreadable-file": ({**BASE, "model.safetensors": b"\xff" * 100}, BASE, "model.safetensors"),
    "unreferenced-shard": ({**shards(), INDEX: as_json({"metadata": {}, "weight_map": dict.fromkeys(list(MODEL)[::3], "model-00001-of-00003.safetensors")})}, shards(), "model-00002-of-00003.safetensors"),
    "vocab-size-mismatch": (with_config(vocab_size=130), BASE, "config.json#vocab_size"),
}  # fmt: skip
ELSEWHERE = {"adapter-base-missing", "gated-without-terms", "name-parameter-count"}
"""What only the Hub tells, or the repository's name: tested one by one below."""


def test_every_rule_is_registered_and_tested() -> None:
    """One file a rule, one entry in the register, a case that sets it off and one that does not."""
    files = {path.stem for path in PACKAGE.glob("*.py") if "RULE = Rule(" in path.read_text(encoding="utf-8")}
    assert files == set(findings_room._MODULES)
    assert {rule.id for rule in rules()} == CASES.keys() | ELSEWHERE
    assert len(rules()) == len(files)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_a_rule_has_a_help_page(rule: Any) -> None:
    """What is wrong, why it matters and what to do, each in words; the id is one that can stand in an option."""
    assert all(part and part == part.strip() for part in (rule.title, rule.about, rule.fix))
    assert rule.severity in ("error", "warning", "info")
    assert rule.id.replace("-", "").isalpha()
    assert rule.id.islower()


@pytest.mark.parametrize("rule", CASES)
def test_it_fires(rule: str, tmp_path: Path) -> None:
    """The repository with the fault has the finding, at the place of the fault, and with something to do."""
    hits = [finding for finding in found(CASES[rule][0], tmp_path) if finding.rule == rule]
    assert CASES[rule][2] in [finding.where for finding in hits]
    assert all(finding.help and finding.message for finding in hits)


@pytest.mark.parametrize("rule", CASES)
def test_it_does_not_fire(rule: str, tmp_path: Path) -> None:
    """The one like it, without the fault, has not."""
    assert rule not in {finding.rule for finding in found(CASES[rule][1], tmp_path)}


def test_a_sound_repository_has_no_findings(tmp_path: Path) -> None:
    """A model, a tokenizer that fits it, and a card that says what is so."""
    card = f"- Number of parameters: {PARAMETERS}\n- Context length: 256 tokens\n- Precision: bfloat16\n"
    files = {
        **with_card(card),
        "tokenizer.json": as_json(TOKENIZER),
        "tokenizer_config.json": as_json({"model_max_length": 256}),
    }
    assert found(files, tmp_path) == []


# --- what only a name or the Hub tells -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("tiny-0.045M", None),  # of 45,344
        ("tiny-0.06M", "info"),
        ("tiny-7B-instruct", "warning"),
        ("tiny-A3B", None),
        ("tiny-v1.0-4bit", None),
        ("tiny-8x0.02M", None),
        ("tiny", None),
    ],
)
def test_the_name(name: str, severity: str | None, local_hub: LocalHub) -> None:
    """A size in the name is held against the count; what is no size is not."""
    local_hub.add(one_file(f"org/{name}", info={"cardData": {"license": "mit"}}))
    report = audit_snapshot(fetch(f"org/{name}"), Workload())
    assert [finding.severity for finding in report.findings if finding.rule == "name-parameter-count"] == (
        [] if severity is None else [severity]
    )


@pytest.mark.parametrize(
    ("info", "rule"),
    [
        ({"cardData": {"license": "mit"}}, None),
        ({"cardData": {"license": ["mit", "apache-2.0"]}}, None),
        ({}, "licence-missing"),
        ({"cardData": {"license": "other"}}, "licence-missing"),
        ({"cardData": {"license": "other", "license_link": "LICENSE"}}, None),
        ({"cardData": {"license": 3}}, "licence-missing"),
        ({"cardData": "a string"}, "licence-missing"),
    ],
)
def test_the_licence_on_the_hub(info: dict[str, Any], rule: str | None, local_hub: LocalHub) -> None:
    """Model info repeats the card's header, so it costs no question."""
    local_hub.add(one_file(info=info))
    assert [one.rule for one in audit_snapshot(fetch("org/one"), Workload()).findings] == (
        [] if rule is None else [rule]
    )


@pytest.mark.parametrize(
    ("card", "fires"),
    [({}, True), ({"extra_gated_prompt": "You agree to …"}, False), ({"license": "llama3.1"}, False)],
)
def test_gated_without_terms(card: dict[str, Any], fires: bool, local_hub: LocalHub) -> None:
    """A gate that says nothing is a finding, to whoever was let in."""
    local_hub.add(one_file(gated="manual", allowed_tokens={"hf_in"}, info={"cardData": card}))
    report = audit_snapshot(fetch("org/one", token="hf_in"), Workload())
    assert ("gated-without-terms" in {finding.rule for finding in report.findings}) == fires


@pytest.mark.parametrize(
    ("base", "rule_and_severity"),
    [
        ("org/base", None),
        ("org/gone", ("adapter-base-missing", "error")),
        ("org/closed", ("adapter-base-missing", "warning")),
        ("/home/me/llama", ("adapter-base-missing", "error")),
        (None, ("adapter-base-missing", "error")),
    ],
)
def test_the_base_of_an_adapter(
    base: str | None, rule_and_severity: tuple[str, str] | None, local_hub: LocalHub
) -> None:
    """There, gone or closed, a path on the trainer's machine, or never named."""
    local_hub.add(LocalRepo("org/base", BASE))
    local_hub.add(LocalRepo("org/closed", BASE, gated="manual"))
    local_hub.add(LocalRepo("org/lora", adapter(base), info={"cardData": {"license": "mit"}}))
    report = audit_snapshot(fetch("org/lora"), Workload())
    hits = [(one.rule, one.severity) for one in report.findings if one.rule != "unpinned-revision"]
    assert hits == ([] if rule_and_severity is None else [rule_and_severity])


def test_offline_is_no_finding(local_hub: LocalHub, tmp_path: Path) -> None:
    """That nobody was asked about the base says nothing of it."""
    snapshot = fetch(lay_out({"README.md": CARD.encode(), **adapter("org/base")}, tmp_path), offline=True)
    report = audit_snapshot(snapshot, Workload())
    assert "adapter-base-missing" not in {finding.rule for finding in report.findings}


def test_code_at_a_branch(local_hub: LocalHub) -> None:
    """A name without a commit is told where code would be run; the commit is told to pin it to."""
    repo = local_hub.add(one_file(config={**CONFIG, "auto_map": {"AutoModel": "modeling_x.X"}}))
    moving = audit_snapshot(fetch("org/one"), Workload()).findings
    assert any(one.rule == "unpinned-revision" and repo.sha in one.message for one in moving)
    pinned = audit_snapshot(fetch(f"org/one@{repo.sha}"), Workload()).findings
    assert "unpinned-revision" not in {one.rule for one in pinned}


def test_the_cache_finds_what_the_hub_did(local_hub: LocalHub) -> None:
    """The second audit, which reads the cache, and one offline have the findings of the first, with their severities."""
    local_hub.add(one_file(config={**CONFIG, "auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}))
    snapshots = [fetch("org/one"), fetch("org/one"), fetch("org/one", offline=True)]
    assert [one.source for one in snapshots] == ["hub", "cache", "cache"]
    first, *later = (audit_snapshot(one, Workload()).findings for one in snapshots)
    assert {one.rule for one in first} >= {"licence-missing", "unpinned-revision"}
    assert later == [first, first]


def test_rules_ask_the_hub_nothing(local_hub: LocalHub) -> None:
    """A card, a tokenizer and a licence in the repository cost no question: three cold, one warm, as without them."""
    beside = {"README.md": CARD, "tokenizer.json": "{}", "tokenizer_config.json": "{}"}
    files = {"config.json": json.dumps(CONFIG), "model.safetensors": safetensors_prefix(TENSORS), **beside}
    local_hub.add(LocalRepo("org/one", files, info={"cardData": {"license": "mit"}}))
    fetch("org/one")
    assert sorted(one for one in asked(local_hub) if not one.startswith(("cached", "cdn"))) == [
        "config.json",
        "info",
        "model.safetensors",
    ]
    local_hub.reset_log()
    assert fetch("org/one").terms == Terms(licence="mit", gated=False)
    assert asked(local_hub) == ["info"]
