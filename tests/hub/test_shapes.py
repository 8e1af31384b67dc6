"""Every shape of repository, from the Hub, from a folder, from huggingface_hub's cache and from a bundle: the same facts, and few questions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_hub import LocalRepo
from shapes import (
    ADAPTER_PARAMETERS,
    BASE,
    GGUF_PARAMETERS,
    LLAMA_GGUF,
    MODEL,
    SHAPES,
    Files,
    adapter,
    as_json,
    diffusers,
    sentence_transformers,
)
from small_repos import PARAMETERS, asked, fetch_quickly
from weight_bytes import gguf, safetensors, torch

from hubaudit.auditing import audit_snapshot
from hubaudit.errors import CannotAuditError, NetworkError, NotFoundError, OfflineError, UsageError
from hubaudit.facts.repository import understand
from hubaudit.hub import fetch
from hubaudit.hub.bundle import write_bundle
from hubaudit.types import ModelFacts, RepoSnapshot, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from local_hub import LocalHub

QUIETLY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = iter(range(1_000_000))


def lay_out(files: Files, folder: Path) -> str:
    """The files in a folder, by its name."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return str(folder)


def on_hub(hub: LocalHub, files: Files) -> str:
    """The files in a new repository of the Hub, by its id."""
    repo_id = f"org/r{next(NUMBERS)}"
    hub.add(LocalRepo(repo_id, files))
    return repo_id


def essence(snapshot: RepoSnapshot) -> RepoSnapshot:
    """What a snapshot says, without where it came from. What the Hub adds of its own is not in the files; of an index it may leave out the map."""
    base = None if snapshot.base is None else essence(snapshot.base)
    return replace(
        snapshot, repo_id="", revision=None, commit=None, source="local", library_name=None, hub_parameters=None, base=base, terms=None,
        indexes=tuple(replace(index, weight_map={}) for index in snapshot.indexes),
    )  # fmt: skip


def facts_or_reason(snapshot: RepoSnapshot) -> ModelFacts | str:
    """What it is, or why that cannot be said."""
    try:
        return understand(essence(snapshot))
    except CannotAuditError as error:
        return error.message


# --- the same wherever it lies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_hub_folder_cache_and_bundle_agree(name: str, local_hub: LocalHub, tmp_path: Path) -> None:
    """The same files give the same facts from each of the four."""
    from huggingface_hub import hf_hub_download

    files = SHAPES[name]
    repo_id = on_hub(local_hub, files)
    seen = fetch_quickly(repo_id)
    for path in files:
        hf_hub_download(repo_id, path)
    write_bundle(seen, tmp_path / "x.json.gz")
    others = [
        fetch(lay_out(files, tmp_path / "folder")),
        fetch(repo_id, offline=True, cache_dir=tmp_path / "nothing yet"),
        fetch(str(tmp_path / "x.json.gz")),
        fetch_quickly(repo_id),
    ]
    for other in others:
        assert essence(other) == essence(seen)
        assert facts_or_reason(other) == facts_or_reason(seen)


@given(
    picked=st.sets(
        st.sampled_from(sorted({(name, path) for name, files in SHAPES.items() for path in files})), max_size=8
    )
)
@QUIETLY
def test_any_mixture_of_files_is_the_same_on_the_hub_and_in_a_folder(
    picked: set[tuple[str, str]], local_hub: LocalHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However files of all shapes are thrown together, no answer depends on where they lie, and none is a crash."""
    files = {path: SHAPES[name][path] for name, path in sorted(picked)}
    seen = fetch_quickly(on_hub(local_hub, files))
    beside = fetch(lay_out(files, tmp_path_factory.mktemp("mixture")))
    assert essence(beside) == essence(seen)
    assert facts_or_reason(beside) == facts_or_reason(seen)


# --- what each is ------------------------------------------------------------------------------------------------------------


def audited(hub: LocalHub, files: Files, **options: Any) -> ModelFacts:
    """The facts of these files on the Hub, by way of a whole audit."""
    return audit_snapshot(fetch_quickly(on_hub(hub, files), **options), Workload()).facts


def total(facts: ModelFacts) -> int:
    """Logical parameters."""
    assert facts.parameters is not None, facts.parameters_reason
    return facts.parameters.total


@pytest.mark.parametrize(
    "name",
    ["one file", "twins", "shards", "variant", "consolidated", "subfolder", "config above", "bin", "bin shards", "pt"],
)
def test_one_model_in_ten_shapes(name: str, local_hub: LocalHub) -> None:
    """The parameters are those of the model, once; bytes on disk are those of the files that were read."""
    facts = audited(local_hub, SHAPES[name])
    assert total(facts) == PARAMETERS
    assert facts.stored_bytes == facts.resident_bytes == 2 * PARAMETERS
    assert facts.file_bytes == sum(len(SHAPES[name][path]) for one in facts.chosen for path in one.files)
    assert facts.layers.value == 4
    assert facts.layers.where.startswith("header:" if name == "pt" else "config.json#")
    assert not [gap for gap in facts.missing if "not in the repository" in gap]


def test_twins_are_named_with_their_bytes(local_hub: LocalHub) -> None:
    """Everything beside the chosen file is there, as formats side by side."""
    files = SHAPES["twins"]
    facts = audited(local_hub, files)
    assert {one.format: one.size_bytes for one in facts.other_weights} == {
        "torch": len(files["pytorch_model.bin"]), "tensorflow": 50, "onnx": 70, "gguf": len(files["m-Q8_0.gguf"]),
    }  # fmt: skip


def test_an_old_pickle_leaves_the_config(local_hub: LocalHub) -> None:
    """Refused with a reason; what config.json implies is still estimated."""
    report = audit_snapshot(fetch_quickly(on_hub(local_hub, SHAPES["old pickle"])), Workload())
    assert total(report.facts) == PARAMETERS
    assert report.facts.stored_bytes is None
    assert report.facts.resident_bytes == 2 * PARAMETERS
    assert any("an old torch format" in gap for gap in report.facts.missing)
    assert [(finding.rule, finding.where) for finding in report.findings if finding.severity == "error"] == [
        ("unreadable-file", "pytorch_model.bin")
    ]


def test_gguf_quantizations_side_by_side(local_hub: LocalHub) -> None:
    """One is audited, the others are listed by size with what llama.cpp would call them; --file takes another."""
    files = SHAPES["gguf"]
    facts = audited(local_hub, files)
    assert (total(facts), facts.quantization and facts.quantization.method) == (GGUF_PARAMETERS, "gguf Q8_0")
    assert facts.chosen[0].variant == "Q4_K_M"
    assert [one.variant for one in facts.other_weights if one.note is None] == ["Q2_K", "Q8_0"]
    other = audited(local_hub, files, file="m-Q2_K.gguf")
    assert (other.chosen[0].variant, total(other)) == ("Q2_K", GGUF_PARAMETERS)


def test_a_split_gguf(local_hub: LocalHub, tmp_path: Path) -> None:
    """Its shards are one model; a shard named by its path brings the others; a missing one is missed."""
    files = SHAPES["gguf shards"]
    assert total(audited(local_hub, files)) == GGUF_PARAMETERS
    first, second = files
    folder = lay_out(files, tmp_path)
    assert total(understand(fetch(f"{folder}/{second}"))) == GGUF_PARAMETERS
    (tmp_path / second).unlink()
    alone = fetch(f"{folder}/{first}")
    assert [problem.path for problem in alone.problems] == [second.rpartition("/")[2]]
    whole = fetch(folder)
    assert [problem.path for problem in whole.problems] == [second]
    for part in (alone, whole):
        facts = understand(part)
        assert facts.parameters is None
        assert facts.stored_bytes is None
        assert facts.layers.value == 1


def test_a_pipeline_is_its_parts(local_hub: LocalHub) -> None:
    """One component each, the whole their sum; variants are not summed; the scheduler and the tokenizer have none."""
    facts = audited(local_hub, SHAPES["pipeline"])
    assert {part.name: total(part) for part in facts.components} == {"text_encoder": 88, "unet": 416, "vae": 288}
    assert total(facts) == 88 + 416 + 288
    assert facts.architecture == "StableDiffusionPipeline"
    assert facts.file_bytes == sum(len(SHAPES["pipeline"][one.files[0]]) for one in facts.chosen)
    assert [(one.format, one.variant, len(one.files)) for one in facts.other_weights] == [("safetensors", "fp16", 3)]
    # diffusers loads its own parts in float32, transformers the text encoder as its config says: float16.
    assert {part.name: part.resident_bytes for part in facts.components} == {
        "text_encoder": 2 * 88,
        "unet": 4 * 416,
        "vae": 4 * 288,
    }
    assert facts.resident_bytes == 2 * 88 + 4 * (416 + 288)
    assert [part.architecture for part in facts.components] == [
        "CLIPTextModel",
        "UNet2DConditionModel",
        "AutoencoderKL",
    ]


def test_a_pipeline_of_variants_is_not_nothing(local_hub: LocalHub) -> None:
    """Only fp16 files: they are counted, and how to load them is said."""
    facts = audited(local_hub, SHAPES["pipeline of variants"])
    assert total(facts) == 88 + 416 + 288
    assert any("variant='fp16'" in gap for gap in facts.missing)


def test_a_pipeline_with_a_broken_part(local_hub: LocalHub) -> None:
    """The other parts are still told; a sum without it would be a wrong one, and is not made."""
    files = {**diffusers(variants=False), "unet/diffusion_pytorch_model.safetensors": b"short"}
    facts = audited(local_hub, files)
    counts = {part.name: None if part.parameters is None else part.parameters.total for part in facts.components}
    assert counts == {"text_encoder": 88, "unet": None, "vae": 288}
    assert facts.parameters is None
    assert str(facts.parameters_reason).startswith("unet: ")
    assert (facts.stored_bytes, facts.resident_bytes) == (None, None)


def test_a_part_of_a_pipeline_by_itself(local_hub: LocalHub) -> None:
    """--file audits it alone, with its own config."""
    facts = audited(local_hub, SHAPES["pipeline"], file="unet/diffusion_pytorch_model.fp16.safetensors")
    assert total(facts) == 416
    assert facts.components == ()


@pytest.mark.parametrize("dense", ["safetensors", "bin"])
def test_dense_modules_count(dense: str, local_hub: LocalHub) -> None:
    """The transformer's shape, its parameters and the Dense module's."""
    facts = audited(local_hub, sentence_transformers(dense=dense))
    assert total(facts) == 10 * 8 + 8 * 8 + 4 * 8 + 4
    assert {part.name: total(part) for part in facts.components} == {"0": 144, "2_Dense": 36}
    assert (facts.library, facts.hidden_size.value, facts.architecture) == ("sentence-transformers", 8, "BertModel")
    assert {one.format for one in facts.other_weights} == {"torch", "onnx"}
    assert facts.resident_bytes == 4 * (144 + 36)


def test_a_transformer_with_a_pooling_is_a_plain_model(local_hub: LocalHub) -> None:
    """What has no weights is no part."""
    facts = audited(local_hub, sentence_transformers(dense=None))
    assert (facts.components, total(facts), facts.library) == ((), 144, "sentence-transformers")


def test_timm(local_hub: LocalHub) -> None:
    """Architecture and classes from its config, parameters from the header."""
    facts = audited(local_hub, SHAPES["timm"])
    assert (facts.library, facts.architecture, facts.family) == ("timm", "vit_tiny", "other")
    assert facts.num_classes is not None
    assert (facts.num_classes.value, facts.num_classes.where) == (10, "config.json#num_classes")
    assert (total(facts), facts.resident_bytes) == (8 * 48 + 80 + 10, 4 * (8 * 48 + 80 + 10))


def test_a_training_checkpoint_is_its_model(local_hub: LocalHub) -> None:
    """The optimizer's tensors are no parameters, and said to be there."""
    files = {"a.ckpt": torch({"w": ("F32", (4, 4))}, under="state_dict", tied={"w.again": "w"})}
    facts = audited(local_hub, files)
    assert (total(facts), facts.stored_bytes) == (16, 64)


# --- adapters ------------------------------------------------------------------------------------------------------------------


def with_base(hub: LocalHub) -> None:
    """The base model that ``adapter()`` names."""
    hub.add(LocalRepo("org/base", BASE))


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_an_adapter_lies_on_its_base(ending: str, local_hub: LocalHub) -> None:
    """Both are audited: the base's shape and cache, the sum of both counts, and the adapter's bytes as a component of their own."""
    with_base(local_hub)
    report = audit_snapshot(fetch_quickly(on_hub(local_hub, adapter(ending=ending))), Workload())
    facts = report.facts
    assert {part.name: total(part) for part in facts.components} == {"base": PARAMETERS, "adapter": ADAPTER_PARAMETERS}
    assert total(facts) == PARAMETERS + ADAPTER_PARAMETERS
    assert (facts.library, facts.layers.value, facts.kv_heads.value) == ("peft", 4, 2)
    assert facts.resident_bytes == 2 * PARAMETERS + 4 * ADAPTER_PARAMETERS
    sizes = {part.id: part.bytes for part in report.estimate.components}
    assert sizes["weights"] == 2 * PARAMETERS
    assert sizes["adapters"] == 4 * ADAPTER_PARAMETERS
    assert "kv_cache" in sizes


def test_an_adapter_on_a_quantized_base(tmp_path: Path) -> None:
    """The base stays packed, the adapter lies on it in fp32, both counts are logical ones, and the report says what it lies on."""
    packed = {
        name: row for name, row in MODEL.items() if not name.endswith("down_proj.weight")
    } | {
        f"model.layers.{n}.mlp.down_proj.{part}": row
        for n in range(4)
        for part, row in (("weight", ("I8", (32, 64))), ("SCB", ("F32", (32,))))
    }  # fmt: skip
    config = {
        **json.loads(BASE["config.json"]),
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    }
    lay_out({"config.json": as_json(config), "model.safetensors": safetensors(packed)}, tmp_path / "base")
    report = audit_snapshot(
        fetch(lay_out(adapter(str(tmp_path / "base")), tmp_path / "adapter"), offline=True), Workload()
    )
    facts, sizes = report.facts, {part.id: part.bytes for part in report.estimate.components}
    assert total(facts) == PARAMETERS + ADAPTER_PARAMETERS
    in_int8 = 4 * 32 * 64
    assert sizes["weights"] == 2 * (PARAMETERS - in_int8) + in_int8 + 4 * 4 * 32
    assert sizes["adapters"] == 4 * ADAPTER_PARAMETERS
    assert facts.resident_bytes == sizes["weights"] + sizes["adapters"]
    assert any("a base quantized by bitsandbytes" in gap for gap in facts.missing)


def test_copies_and_replacements(local_hub: LocalHub) -> None:
    """modules_to_save are copies beside the base's; an embedding saved whole takes the place of the base's."""
    with_base(local_hub)
    whole = {
        "base_model.model.lm_head.weight": ("F32", (128, 32)),
        "base_model.model.model.embed_tokens.weight": ("F32", (128, 32)),
    }
    tensors = {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": ("F32", (8, 32)), **whole}
    files = adapter(tensors=tensors, modules_to_save=["lm_head"])
    report = audit_snapshot(fetch_quickly(on_hub(local_hub, files)), Workload())
    adapters = next(part.bytes for part in report.estimate.components if part.id == "adapters")
    assert adapters == 4 * 8 * 32 + 2 * 128 * 32  # the copy in the base's bf16
    own = report.facts.components[1]
    assert own.parameters is not None
    assert own.parameters.extra == {"replaces the base's": 128 * 32}


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("org/nowhere", "org/nowhere"),
        (None, "names no base model"),
        ("/root/models/llama", "no repository's id"),
        ("../base", "no repository's id"),
    ],
)
def test_an_adapter_without_its_base(base: str | None, words: str, local_hub: LocalHub, typed_401: None) -> None:
    """The adapter alone, and the reason; a path that a repository of the Hub names is not opened."""
    report = audit_snapshot(fetch_quickly(on_hub(local_hub, adapter(base))), Workload())
    assert [part.name for part in report.facts.components] == ["adapter"]
    assert total(report.facts) == ADAPTER_PARAMETERS
    assert any(words in gap for gap in report.facts.missing)
    assert {part.id for part in report.estimate.omitted} >= {"weights", "kv_cache"}
    assert next(part.bytes for part in report.estimate.components if part.id == "adapters") == 4 * ADAPTER_PARAMETERS


@pytest.mark.parametrize("base", ["base", "./base", "absolute"])
def test_an_adapter_of_the_hub_opens_no_folder_of_this_machine(
    base: str, local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed_401: None
) -> None:
    """Also where the folder that it names is there, and is a model: what it says would stand in a stranger's report."""
    lay_out(BASE, tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    snapshot = fetch_quickly(on_hub(local_hub, adapter(str(tmp_path / "base") if base == "absolute" else base)))
    assert snapshot.base is None
    assert total(understand(snapshot)) == ADAPTER_PARAMETERS


def test_a_local_adapter_finds_its_base_by_id_or_path(
    local_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As transformers resolves it: a folder that is there, else the Hub or, offline, the cache."""
    with_base(local_hub)
    by_id = lay_out(adapter(), tmp_path / "by-id")
    lay_out(BASE, tmp_path / "base")
    by_path = lay_out(adapter(str(tmp_path / "base")), tmp_path / "by-path")
    wanted = PARAMETERS + ADAPTER_PARAMETERS
    assert total(understand(fetch_quickly(by_id))) == total(understand(fetch_quickly(by_path))) == wanted
    local_hub.reset_log()
    assert total(understand(fetch(by_id, offline=True))) == wanted
    monkeypatch.chdir(tmp_path)
    assert total(understand(fetch(lay_out(adapter("./base"), tmp_path / "by-relative-path"), offline=True))) == wanted
    lost = fetch(lay_out(adapter("org/never-seen"), tmp_path / "lost"), offline=True)
    assert lost.base_reason is not None
    assert "offline" in lost.base_reason
    assert local_hub.requests == []


def test_a_bundle_of_an_adapter_holds_its_base(local_hub: LocalHub, tmp_path: Path) -> None:
    """Replaying it asks for nothing; an adapter is cached without its base, which may move."""
    with_base(local_hub)
    seen = fetch_quickly(on_hub(local_hub, adapter()))
    write_bundle(seen, tmp_path / "x.json")
    local_hub.reset_log()
    assert understand(fetch(str(tmp_path / "x.json"))) == understand(seen)
    assert local_hub.requests == []


def test_a_network_that_fails_at_the_base_ends_the_audit(local_hub: LocalHub) -> None:
    """Half an answer would be a wrong one."""
    with_base(local_hub)
    repo_id = on_hub(local_hub, adapter())
    local_hub.fault("reset", "org/base")
    with pytest.raises(NetworkError):
        fetch_quickly(repo_id)


# --- what cannot be read ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["broken gguf"])
def test_bad_bytes_are_one_line(name: str, local_hub: LocalHub) -> None:
    """A file that breaks its format is named with the place, and nothing is left to audit."""
    snapshot = fetch_quickly(on_hub(local_hub, SHAPES[name]))
    with pytest.raises(CannotAuditError) as caught:
        audit_snapshot(snapshot, Workload())
    assert "m.gguf" in caught.value.message
    assert caught.value.message.isprintable()


def test_one_bad_file_leaves_the_rest(local_hub: LocalHub) -> None:
    """A broken GGUF beside readable shards, a broken shard beside good ones."""
    facts = audited(local_hub, SHAPES["broken shard"])
    assert facts.layers.value == 4
    assert any("model-00002-of-00003.safetensors" in gap for gap in facts.missing)


def test_a_file_that_was_asked_for_and_is_not_there(local_hub: LocalHub, tmp_path: Path) -> None:
    """On the Hub, in a folder, and where there is nothing to choose."""
    repo_id = on_hub(local_hub, SHAPES["gguf"])
    folder = lay_out(SHAPES["gguf"], tmp_path)
    for name in (repo_id, folder):
        with pytest.raises(NotFoundError, match=r"no file `nothing\.gguf`"):
            fetch_quickly(name, file="nothing.gguf")
    with pytest.raises(UsageError, match="nothing to choose"):
        fetch_quickly(f"{folder}/m-Q2_K.gguf", file="m-Q2_K.gguf")


def test_a_choice_is_cached_by_itself(local_hub: LocalHub) -> None:
    """The default and each chosen file are different answers; offline too."""
    repo_id = on_hub(local_hub, SHAPES["gguf"])
    for file in (None, "m-Q2_K.gguf", None):
        assert fetch_quickly(repo_id, file=file).weights[0].path == (file or "m-Q4_K_M.gguf")
    local_hub.reset_log()
    assert fetch(repo_id, file="m-Q2_K.gguf", offline=True).weights[0].path == "m-Q2_K.gguf"
    with pytest.raises(OfflineError):
        fetch(repo_id, file="m-Q8_0.gguf", offline=True)
    assert local_hub.requests == []


def test_weights_that_the_config_names(local_hub: LocalHub) -> None:
    """The file that config.json names is loaded before any other; a name that is no weight file changes nothing."""
    config = {**json.loads(BASE["config.json"]), "transformers_weights": "other.safetensors"}
    files = {**BASE, "config.json": as_json(config), "other.safetensors": safetensors({"w": ("F32", (2, 2))})}
    assert [one.files for one in fetch_quickly(on_hub(local_hub, files)).chosen] == [("other.safetensors",)]
    for named in ("config.json", "nothing.safetensors", "../x.safetensors", "", 3):
        changed = {**files, "config.json": as_json({**config, "transformers_weights": named})}
        assert [one.files for one in fetch_quickly(on_hub(local_hub, changed)).chosen] == [("model.safetensors",)]


def test_the_url_of_one_quantization(local_hub: LocalHub) -> None:
    """It is audited, not the one that llama.cpp would take."""
    repo_id = on_hub(local_hub, SHAPES["gguf"])
    snapshot = fetch_quickly(f"{local_hub.endpoint}/{repo_id}/blob/main/m-Q2_K.gguf")
    assert (snapshot.repo_id, snapshot.chosen[0].variant) == (repo_id, "Q2_K")


# --- how much is asked ---------------------------------------------------------------------------------------------------------------


QUESTIONS = {
    "one file": {"info": 1, "config.json": 1, "model.safetensors": 1},
    "twins": {"info": 1, "config.json": 1, "model.safetensors": 1},
    "shards": {"info": 2, "config.json": 1, "headers": 1},  # whose commit the served headers are of is asked
    "bin": {"info": 1, "config.json": 1, "pytorch_model.bin": 1},
    "gguf": {"info": 1, "m-Q4_K_M.gguf": 1},
    "onnx only": {"info": 1, "config.json": 1},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_budget(name: str, local_hub: LocalHub) -> None:
    """No question more than the answer needs: the headers of twins are not read."""
    repo_id = on_hub(local_hub, SHAPES[name])
    local_hub.reset_log()
    fetch_quickly(repo_id)
    first_hops = [name for name in asked(local_hub) if not name.startswith(("cdn", "cached"))]
    assert {name: first_hops.count(name) for name in first_hops} == QUESTIONS[name]


def test_a_pipeline_asks_for_each_part_once(local_hub: LocalHub) -> None:
    """The table of contents, then a config and a header for each part, and nothing of schedulers, tokenizers or variants."""
    repo_id = on_hub(local_hub, SHAPES["pipeline"])
    local_hub.reset_log()
    fetch_quickly(repo_id)
    first_hops = sorted(name for name in asked(local_hub) if not name.startswith(("cdn", "cached")))
    assert first_hops == sorted(
        [
            "info",
            "model_index.json",
            *["config.json"] * 3,
            *["diffusion_pytorch_model.safetensors"] * 2,
            "model.safetensors",
        ]
    )


def test_a_large_gguf_header_is_read_in_few_pieces(local_hub: LocalHub) -> None:
    """A vocabulary of 128,000 tokens is passed over in pieces that grow; the tensors' data are not read."""
    metadata = {**LLAMA_GGUF, "tokenizer.ggml.tokens": [f"token-{number}" for number in range(128_000)]}
    repo_id = on_hub(local_hub, {"m.gguf": gguf(metadata, {"token_embd.weight": ("Q8_0", (128_000, 32))})})
    local_hub.reset_log()
    assert total(understand(fetch_quickly(repo_id))) == 128_000 * 32
    assert len([name for name in asked(local_hub) if "m.gguf" in name]) <= 9
