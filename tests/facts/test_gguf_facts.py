"""GGUF files: geometry by the architecture's own keys, roles by tensor names, logical parameters, and what each layer keeps."""

from __future__ import annotations

from typing import Any

import pytest
from byte_sources import BytesSource
from weight_bytes import Tensors, gguf

from hubaudit.data import table
from hubaudit.estimate.infer import estimate
from hubaudit.facts.gguf_facts import role_of
from hubaudit.facts.gguf_metadata import GgufMetadata
from hubaudit.facts.gguf_plan import plan_gguf
from hubaudit.facts.repository import understand
from hubaudit.facts.tensors import pattern_of
from hubaudit.formats.gguf import read_gguf
from hubaudit.types import LayerSpec, ModelFacts, RepoSnapshot, Workload

# Llama-3.1-8B as convert_hf_to_gguf.py writes it: hidden 4096, 32 layers, 32 heads, 8 kv heads, 14336, vocabulary 128256, an untied head and the
# 64 factors of its rope. The Hub counts 8,030,261,312 for its GGUFs: 8,030,261,248 parameters and those 64.
LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.file_type": 15,
    "llama.block_count": 2,
    "llama.context_length": 131072,
    "llama.embedding_length": 256,
    "llama.feed_forward_length": 512,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "llama.rope.dimension_count": 32,
    "tokenizer.ggml.tokens": [f"t{number}" for number in range(300)],
}


def block(number: int, **changes: tuple[str, tuple[int, ...]] | None) -> Tensors:
    """One layer of ``LLAMA``."""
    tensors: dict[str, tuple[str, tuple[int, ...]] | None] = {
        "attn_norm": ("F32", (256,)),
        "attn_q": ("Q4_K", (256, 256)),
        "attn_k": ("Q4_K", (64, 256)),
        "attn_v": ("Q6_K", (64, 256)),
        "attn_output": ("Q4_K", (256, 256)),
        "ffn_norm": ("F32", (256,)),
        "ffn_gate": ("Q4_K", (512, 256)),
        "ffn_up": ("Q4_K", (512, 256)),
        "ffn_down": ("Q6_K", (256, 512)),
        **changes,
    }
    return {f"blk.{number}.{name}.weight": tensor for name, tensor in tensors.items() if tensor is not None}


ENDS: Tensors = {
    "token_embd.weight": ("Q4_K", (300, 256)),
    "output_norm.weight": ("F32", (256,)),
    "output.weight": ("Q6_K", (300, 256)),
    "rope_freqs.weight": ("F32", (16,)),
}
LAYER = 2 * 256 * 256 + 2 * 64 * 256 + 3 * 512 * 256 + 2 * 256
TENSORS = {**ENDS, **block(0), **block(1)}


def snapshot_of(*files: tuple[dict[str, Any], Tensors]) -> RepoSnapshot:
    """A repository of these GGUF files."""
    weights = tuple(read_gguf(BytesSource(gguf(*file), path=f"m-{number}.gguf")) for number, file in enumerate(files))
    return RepoSnapshot(repo_id="made/up", revision=None, commit=None, source="local", weights=weights)


def facts_of(metadata: dict[str, Any] = LLAMA, tensors: Tensors = TENSORS) -> ModelFacts:
    """What one file's model is."""
    return understand(snapshot_of((metadata, tensors)))


def llama(**changes: Any) -> dict[str, Any]:
    """``LLAMA`` with keys of its own changed; ``None`` takes one out, ``__`` stands for a dot."""
    merged = LLAMA | {f"llama.{key.replace('__', '.')}": value for key, value in changes.items()}
    return {key: value for key, value in merged.items() if value is not None}


def plan(architecture: str, layers: int, **keys: Any) -> tuple[LayerSpec, ...]:
    """The plan of an architecture with these keys of its own."""
    own = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    found, reason = plan_gguf(GgufMetadata({"general.architecture": architecture, **own}), layers)
    assert found is not None, reason
    return found


def why_not(architecture: str, layers: int = 4, **keys: Any) -> str:
    """Why such a plan is not known."""
    own = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    found, reason = plan_gguf(GgufMetadata({"general.architecture": architecture, **own}), layers)
    assert found is None
    assert reason is not None
    return reason


def bytes_a_token(layers: tuple[LayerSpec, ...], *, window: bool = False) -> int:
    """f16 keys and values of one more token, of the layers with or without a window."""
    tensors = [tensor for layer in layers if layer.shares_cache_with is None for tensor in layer.tensors]
    return 2 * sum(tensor.elements_per_token for tensor in tensors if (tensor.window_tokens is not None) == window)


# --- what the model is -----------------------------------------------------------------------------------------------------


def test_geometry_and_counts() -> None:
    """Every value with the key it came from; parameters are logical, by ggml's own type names."""
    facts = facts_of()
    values = (
        facts.layers,
        facts.hidden_size,
        facts.intermediate_size,
        facts.attention_heads,
        facts.kv_heads,
        facts.head_dim,
        facts.vocab_size,
    )
    assert [value.value for value in values] == [2, 256, 512, 8, 2, 32, 300]
    assert facts.max_positions.value == 131072
    assert facts.layers.where == "gguf:llama.block_count"
    assert facts.tied_embeddings.value is False
    assert facts.model_type == "llama"
    assert facts.quantization is not None
    assert facts.quantization.method == "gguf Q4_K_M"
    assert facts.parameters is not None
    assert (
        facts.parameters.total
        == facts.parameters.loaded
        == facts.parameters.active
        == 2 * 300 * 256 + 256 + 16 + 2 * LAYER
    )
    assert set(facts.parameters.by_dtype) == {"Q4_K", "Q6_K", "F32"}
    assert facts.parameters.by_role["norm"] == 5 * 256


def test_bytes_are_the_blocks_and_stay_so_when_loaded() -> None:
    """Q4_K takes 144 bytes for 256 weights, Q6_K 210 (ggml-common.h); llama.cpp holds them as they are."""
    facts = facts_of()
    q4 = 300 * 256 + 2 * (2 * 256 * 256 + 64 * 256 + 2 * 512 * 256)
    q6 = 300 * 256 + 2 * (64 * 256 + 512 * 256)
    assert facts.stored_bytes == q4 // 256 * 144 + q6 // 256 * 210 + 4 * (5 * 256 + 16)
    assert facts.resident_bytes == facts.stored_bytes
    weights = next(part for part in estimate(facts, Workload()).components if part.id == "weights")
    assert weights.bytes == facts.stored_bytes


def test_a_missing_head_is_a_tied_one() -> None:
    """llama.cpp takes token_embd where there is no output.weight."""
    facts = facts_of(tensors={name: tensor for name, tensor in TENSORS.items() if name != "output.weight"})
    assert facts.tied_embeddings.value is True


def test_other_keys_with_the_same_ending_do_not_count() -> None:
    """The context before rope scaling, and the vision tower's shape, overwrite nothing, in whichever order they come."""
    intruders = {
        "llama.rope.scaling.original_context_length": 8192,
        "clip.vision.block_count": 24,
        "clip.vision.embedding_length": 1024,
        "clip.vision.attention.head_count": 16,
        "general.base_model.0.block_count": 99,
    }
    for metadata in (intruders | LLAMA, LLAMA | intruders):
        facts = facts_of(metadata)
        assert [
            facts.max_positions.value,
            facts.layers.value,
            facts.hidden_size.value,
            facts.attention_heads.value,
        ] == [131072, 2, 256, 8]


@pytest.mark.parametrize("bad", ["many", -1.5, [1.5], ["a"], True])
def test_a_value_that_is_no_count(bad: Any) -> None:
    """It is unknown, with the key, and the rest is still told."""
    facts = facts_of(llama(block_count=bad))
    assert facts.layers.value is None
    assert "block_count is no count" in facts.layers.where
    assert facts.layer_plan is None
    assert facts.hidden_size.value == 256


def test_head_counts_by_layer() -> None:
    """One value where all layers agree (those without attention aside), none where they differ; the plan has each layer's own."""
    assert facts_of(llama(attention__head_count_kv=[2, 2])).kv_heads.value == 2
    facts = facts_of(llama(attention__head_count_kv=[2, 4]))
    assert facts.kv_heads.value is None
    assert facts.kv_heads.where == "gguf:llama.attention.head_count_kv differs by layer (2, 4)"
    assert facts.layer_plan is not None
    assert [layer.tensors[0].elements_per_token for layer in facts.layer_plan] == [64, 128]


def test_experts() -> None:
    """Routed experts are told by their tensors' names; one token passes through expert_used_count of expert_count."""
    moe = {"ffn_gate_inp": ("F32", (4, 256)), "ffn_gate_exps": ("Q4_K", (4, 512, 256)), "ffn_up_exps": ("Q4_K", (4, 512, 256)),
           "ffn_down_exps": ("Q4_K", (4, 256, 512)), "ffn_gate": None, "ffn_up": None, "ffn_down": None}  # fmt: skip
    facts = facts_of(llama(expert_count=4, expert_used_count=2), {**ENDS, **block(0, **moe), **block(1, **moe)})  # type: ignore[arg-type]
    assert facts.moe is not None
    assert (facts.moe.experts.value, facts.moe.experts_per_token.value) == (4, 2)
    assert facts.parameters is not None
    assert facts.parameters.by_role["expert"] == 2 * 4 * 3 * 512 * 256
    assert facts.parameters.active == facts.parameters.total - 2 * 2 * 3 * 512 * 256


def test_layers_that_predict_further_tokens_are_not_loaded() -> None:
    """llama.cpp skips them unless it drafts with them: counted in the total, not in what is loaded."""
    facts = facts_of(
        llama(block_count=3, nextn_predict_layers=1),
        {**TENSORS, **block(2), "blk.2.nextn.eh_proj.weight": ("Q4_K", (256, 512))},
    )
    assert facts.layers.value == 2
    assert facts.layer_plan is not None
    assert len(facts.layer_plan) == 2
    assert facts.parameters is not None
    assert facts.parameters.extra == {"mtp": LAYER + 256 * 512}
    assert facts.disagreements == ()


def test_a_split_model_is_one() -> None:
    """The first shard has the metadata, the others their tensors only."""
    first = {**LLAMA, "split.no": 0, "split.count": 2}
    shards = ((first, {**ENDS, **block(0)}), ({"split.no": 1, "split.count": 2}, block(1)))
    for files in (shards, shards[::-1]):
        facts = understand(snapshot_of(*files))
        assert facts.parameters == facts_of().parameters
        assert (facts.layers.value, facts.stored_bytes) == (2, facts_of().stored_bytes)


def test_metadata_and_tensors_that_contradict_each_other() -> None:
    """A block count or a width that the tensors do not have is a disagreement."""
    subjects = {item.subject for item in facts_of(llama(block_count=5, embedding_length=512)).disagreements}
    assert subjects == {"layers", "hidden_size"}


def test_without_an_architecture() -> None:
    """The tensors are still counted."""
    facts = facts_of({"general.name": "nameless"})
    assert facts.parameters is not None
    assert facts.layers.value is None
    assert facts.layer_plan is None
    assert facts.family == "unknown"


# --- what each layer keeps -------------------------------------------------------------------------------------------------


def test_key_and_value_lengths_count_and_not_the_width_divided_by_heads() -> None:
    """Qwen3-0.6B: hidden 1024, 16 heads, but 8 kv heads of 128: 114,688 bytes a token in f16 (28 layers), not half of it."""
    layers = plan("qwen3", 28, embedding_length=1024, attention__head_count=16, attention__head_count_kv=8,
                  attention__key_length=128, attention__value_length=128)  # fmt: skip
    assert bytes_a_token(layers) == 114_688


def test_latent_attention_old_and_new() -> None:
    """DeepSeek-V2-Lite: 270 KiB a token in the old form (llama.cpp's own log), and the latent of 576 a layer since key_length_mla is written."""
    old = plan(
        "deepseek2",
        27,
        attention__head_count=16,
        attention__head_count_kv=16,
        attention__key_length=192,
        attention__value_length=128,
    )
    assert bytes_a_token(old) == 270 * 1024
    new = plan("deepseek2", 27, attention__head_count=16, attention__head_count_kv=1, attention__key_length=576, attention__value_length=512,
               attention__key_length_mla=192, attention__value_length_mla=128)  # fmt: skip
    assert bytes_a_token(new) == 2 * 27 * 576
    assert {layer.kind for layer in new} == {"mla"}


def test_gated_delta_layers_keep_what_llama_cpp_logs() -> None:
    """Qwen3.5-27B: 64 KiB a token in 16 of 64 layers, and 3,268,608 bytes of state in each of the other 48 (figures F1936 to F1943)."""
    layers = plan("qwen35", 64, embedding_length=5120, attention__head_count=24, attention__head_count_kv=4, attention__key_length=256,
                  attention__value_length=256, full_attention_interval=4, ssm__conv_kernel=4, ssm__state_size=128, ssm__group_count=16,
                  ssm__inner_size=6144, ssm__time_step_rank=48)  # fmt: skip
    assert bytes_a_token(layers) == 64 * 1024
    states = [4 * sum(tensor.fixed_elements for tensor in layer.tensors) for layer in layers]
    assert sorted(set(states)) == [0, 3_268_608]
    assert states.count(3_268_608) == 48


@pytest.mark.parametrize(
    ("architecture", "layers", "keys", "full"),
    [
        # The published patterns: Gemma 2 alternates, Gemma 3 has five windows to each full layer, gpt-oss alternates from a window on,
        # Cohere 2 three to one, OLMo 3 three to one, SmallThinker begins with a full one, ModernBERT keeps nothing.
        ("gemma2", 4, {}, [1, 3]),
        ("gemma2", 4, {"attention.sliding_window": 4096}, [1, 3]),
        ("gemma3", 12, {"attention.sliding_window": 1024}, [5, 11]),
        ("gemma3", 12, {}, list(range(12))),
        ("gemma3", 4, {"attention.sliding_window": 512, "attention.sliding_window_pattern": 2}, [1, 3]),
        ("gpt-oss", 4, {"attention.sliding_window": 128}, [1, 3]),
        ("cohere2", 8, {"attention.sliding_window": 4096}, [3, 7]),
        ("olmo2", 8, {"attention.sliding_window": 4096}, [3, 7]),
        ("olmo2", 4, {}, [0, 1, 2, 3]),
        ("smallthinker", 8, {"attention.sliding_window": 4096}, [0, 4]),
        ("llama4", 8, {}, [3, 7]),
        ("llama4", 4, {"attention.sliding_window": 0}, [0, 1, 2, 3]),
        ("exaone4", 64, {}, list(range(3, 64, 4))),
        ("exaone4", 30, {"attention.sliding_window": 4096}, list(range(30))),
        ("step35", 4, {"attention.sliding_window": 512, "attention.sliding_window_pattern": [False, True, True, False]}, [0, 3]),
        ("llama", 4, {"attention.sliding_window": 4096}, [0, 1, 2, 3]),
        ("qwen2", 4, {"attention.sliding_window": 32768}, [0, 1, 2, 3]),
        ("phi3", 4, {"attention.sliding_window": 2047}, [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_windows_where_llama_cpp_has_them(
    architecture: str, layers: int, keys: dict[str, Any], full: list[int]
) -> None:
    """Which layers keep all tokens; the others keep their window (Llama 4 its chunk)."""
    found = plan(architecture, layers, attention__head_count=4, attention__head_count_kv=2, embedding_length=64,
                 **{key.replace(".", "__"): value for key, value in keys.items()})  # fmt: skip
    assert [layer.index for layer in found if layer.kind == "full"] == full
    windows = {tensor.window_tokens for layer in found for tensor in layer.tensors} - {None}
    assert len(windows) == (len(full) < layers)
    assert {layer.kind for layer in found} <= {"full", "chunked" if architecture == "llama4" else "sliding"}


def test_layers_that_read_anothers_cache() -> None:
    """Gemma 3n E4B: of 35 layers the last 15 read the cache of layer 18 (window) or 19 (full)."""
    found = plan("gemma3n", 35, attention__head_count=8, attention__head_count_kv=2, attention__key_length=256, attention__value_length=256,
                 attention__sliding_window=512, embedding_length=2048)  # fmt: skip
    assert [layer.shares_cache_with for layer in found[18:26]] == [None, None, 18, 18, 18, 18, 19, 18]
    assert found[24].kind == found[19].kind == "full"
    listed = plan("gemma4", 6, attention__head_count=8, attention__head_count_kv=[1, 1, 1, 2, 1, 2], attention__key_length=512,
                  attention__value_length=512, attention__key_length_swa=256, attention__value_length_swa=256, attention__sliding_window=512,
                  attention__sliding_window_pattern=[True, True, True, False, True, False], attention__shared_kv_layers=2,
                  embedding_length=1536)  # fmt: skip
    assert [layer.tensors[0].elements_per_token for layer in listed[:4]] == [256, 256, 256, 1024]
    assert [layer.shares_cache_with for layer in listed] == [None, None, None, None, 2, 3]


@pytest.mark.parametrize(
    ("architecture", "keys", "kinds"),
    [
        ("mamba", {"ssm.inner_size": 128, "ssm.state_size": 16, "ssm.conv_kernel": 4}, ["mamba1"] * 4),
        ("jamba", {"ssm.inner_size": 128, "ssm.state_size": 16, "ssm.conv_kernel": 4, "attention.head_count_kv": [0, 2, 0, 0]}, ["mamba1", "full", "mamba1", "mamba1"]),
        ("falcon-h1", {"ssm.inner_size": 128, "ssm.state_size": 16, "ssm.conv_kernel": 4, "ssm.group_count": 1}, ["full+mamba2"] * 4),
        ("nemotron_h", {"ssm.inner_size": 128, "ssm.state_size": 16, "ssm.conv_kernel": 4, "ssm.group_count": 1,
                        "attention.head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, 64, 0, 64]}, ["mamba2", "none", "full", "none"]),
        ("lfm2", {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0, 2]}, ["conv", "full", "conv", "full"]),
        ("rwkv7", {"wkv.head_size": 16, "attention.head_count": None, "attention.head_count_kv": None}, ["rwkv"] * 4),
        ("qwen3next", {"ssm.inner_size": 128, "ssm.state_size": 16, "ssm.conv_kernel": 4, "ssm.group_count": 2}, ["linear", "linear", "linear", "full"]),
        ("kimi-linear", {"kda.head_dim": 16, "ssm.conv_kernel": 4, "attention.head_count_kv": [0, 0, 0, 1], "attention.key_length_mla": 24,
                         "attention.key_length": 40}, ["linear", "linear", "linear", "mla"]),
        ("bert", {}, ["none"] * 4),
        ("gemma-embedding", {"attention.sliding_window": 512}, ["none"] * 4),
        ("deci", {"attention.head_count_kv": [2, 0, 2, 0]}, ["full", "none", "full", "none"]),
        ("deepseek32", {"attention.key_length_mla": 24, "attention.key_length": 40, "attention.indexer.key_length": 8}, ["mla+index"] * 4),
    ],
)  # fmt: skip
def test_kinds_of_layers(architecture: str, keys: dict[str, Any], kinds: list[str]) -> None:
    """States, convolutions, latents and nothing at all, layer by layer."""
    own: dict[str, Any] = {"embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2} | keys
    found = plan(architecture, 4, **{key.replace(".", "__"): value for key, value in own.items() if value is not None})
    assert [layer.kind for layer in found] == kinds
    kept = [any(tensor.fixed_elements or tensor.elements_per_token for tensor in layer.tensors) for layer in found]
    assert kept == [kind != "none" for kind in kinds]


def test_state_sizes_are_those_of_llama_cpp() -> None:
    """n_embd_r and n_embd_s of llama-hparams.cpp, worked by hand for one layer of each shape."""
    ssm = {"ssm__inner_size": 5120, "ssm__state_size": 128, "ssm__conv_kernel": 4, "ssm__group_count": 1}
    (mamba,) = plan("mamba2", 1, **ssm)
    assert [tensor.fixed_elements for tensor in mamba.tensors] == [3 * (5120 + 2 * 128), 128 * 5120]
    (rwkv,) = plan("rwkv7", 1, wkv__head_size=64, embedding_length=768)
    assert [tensor.fixed_elements for tensor in rwkv.tensors] == [2 * 768, 768 * 64]
    (conv,) = plan(
        "lfm2", 1, shortconv__l_cache=3, embedding_length=1024, attention__head_count=16, attention__head_count_kv=0
    )
    assert [tensor.fixed_elements for tensor in conv.tensors] == [2 * 1024]
    (kda,) = plan(
        "kimi-linear", 1, kda__head_dim=128, ssm__conv_kernel=4, attention__head_count=32, attention__head_count_kv=0
    )
    assert [tensor.fixed_elements for tensor in kda.tensors] == [3 * 3 * 32 * 128, 128 * 128 * 32]
    assert {tensor.dtype for layer in (mamba, rwkv, conv, kda) for tensor in layer.tensors} == {"F32"}


@pytest.mark.parametrize(
    ("architecture", "keys", "words"),
    [
        ("t5", {}, "cross-attention"),
        ("deepseek4", {}, "not described"),
        ("llama", {}, "no attention.head_count"),
        ("llama", {"attention__head_count": [4, 4]}, "no count for every layer"),
        ("llama", {"attention__head_count": 4, "attention__key_length": "wide", "embedding_length": 64}, "no count"),
        (
            "step35",
            {"attention__head_count": 4, "embedding_length": 64, "attention__sliding_window": 512},
            "does not list which layers",
        ),
        (
            "newcomer",
            {"attention__head_count": 4, "embedding_length": 64, "attention__sliding_window": 512},
            "windows and states are not known",
        ),
        (
            "newcomer",
            {"attention__head_count": 4, "embedding_length": 64, "ssm__state_size": 16},
            "windows and states are not known",
        ),
        ("mamba", {"ssm__state_size": 16}, "ssm.inner_size"),
    ],
)
def test_what_cannot_be_planned(architecture: str, keys: dict[str, Any], words: str) -> None:
    """A plan that would be a guess is not made."""
    assert words in why_not(architecture, **keys)


def test_an_unknown_architecture_without_windows_or_states() -> None:
    """Full attention is an upper bound, and the plan says that it is one."""
    found = plan("newcomer", 2, attention__head_count=4, embedding_length=64)
    assert {layer.kind for layer in found} == {"full"}
    assert "an upper bound" in found[0].where


# --- against the gguf package ------------------------------------------------------------------------------------------------


@pytest.mark.oracle
def test_every_tensor_name_of_the_package_has_a_role() -> None:
    """Of all names in gguf/constants.py, those of the language model have a role; projections are attention, experts are experts."""
    constants = pytest.importorskip("gguf").constants
    names = {pattern_of(name.format(bid=0, xid=0) + ".weight") for name in constants.TENSOR_NAMES.values()}
    text = {name for name in names if name.startswith(("blk.", "token", "output", "position", "enc.", "dec.", "rope"))}
    unknown = {name for name in text if role_of(name) == "other"}
    assert not {name for name in unknown if any(word in name for word in ("attn", "ffn", "norm", "ssm", "embd"))}
    for name, role in (("attn_q", "attention"), ("attn_output", "attention"), ("ffn_down_exps", "expert"), ("ffn_up_shexp", "shared_expert"),
                       ("ffn_gate_inp", "router"), ("attn_q_norm", "norm"), ("post_ffw_norm", "norm"), ("ffn_norm", "norm"), ("ssm_conv1d", "state_space"),
                       ("ffn_gate_chexps", "expert"), ("nextn.eh_proj", "mtp"), ("ffn_gate_up_exps", "expert"), ("attn_k_b", "attention")):  # fmt: skip
        assert role_of(f"blk.*.{name}.weight") == role, name
    assert role_of("output.weight") == "head"
    assert role_of("v.blk.*.attn_q.weight") == "vision"


@pytest.mark.oracle
def test_file_types_are_the_packages() -> None:
    """general.file_type under its usual name, for every value that the package knows."""
    file_types = pytest.importorskip("gguf").constants.LlamaFileType
    wanted = {
        str(row.value): row.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        for row in file_types
        if row.name != "GUESSED"
    }
    assert table("gguf_architectures.toml")["file_type"] == wanted


@pytest.mark.oracle
def test_every_architecture_of_the_package_is_known() -> None:
    """Those that llama.cpp b10256 has under another name, or not at all, are the exceptions."""
    names = set(pytest.importorskip("gguf").constants.MODEL_ARCH_NAMES.values())
    facts = table("gguf_architectures.toml")
    assert names - {*facts["known"], *facts["not_described"]} <= {"clip", "mmproj"}
    named = {name for kind in ("window", "state") for row in facts[kind] for name in row["architectures"]}
    assert named <= set(facts["known"])
