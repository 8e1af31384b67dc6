"""GGUF files → the facts of their model: the file describes itself, and needs no config."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Literal

from hubaudit.data import table
from hubaudit.data.dtypes import bits_of
from hubaudit.facts.gguf_metadata import MAX_LAYERS, GgufMetadata, metadata_of
from hubaudit.facts.gguf_plan import TABLE, plan_gguf
from hubaudit.facts.model import lost_weights
from hubaudit.facts.tensors import by_name, count_parameters, group_tensors
from hubaudit.types import Disagreement, MixtureOfExperts, ModelFacts, Quantization, Sourced, TensorGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hubaudit.types import RepoSnapshot

_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_BLOCK = re.compile(r"^blk\.(\d+)\.")
#: llama.cpp's cache is of f16 unless it is told otherwise (common/arg.cpp), and so are the results that it keeps.
_DTYPE = Sourced(
    value="F16", where="default:llama.cpp's --cache-type-k and --cache-type-v; weights stay as they are stored"
)


def understand_gguf(snapshot: RepoSnapshot) -> ModelFacts:
    """What the model is, by the metadata and the tensor table of its GGUF files.

    Keys are read by their whole names, so that neither the vision tower's nor the rope scaling's stand in for the language model's.
    """
    metadata = metadata_of(snapshot.weights)
    layers = _layers(metadata)
    groups = _groups(snapshot, layers.value)
    named = {group.pattern: group for group in groups}
    moe = _experts(metadata)
    plan, plan_reason = plan_gguf(metadata, layers.value)
    parameters = count_parameters(
        groups,
        experts=None if moe is None else moe.experts.value,
        experts_per_token=None if moe is None else moe.experts_per_token.value,
        is_moe=moe is not None,
        where="header:all tensors, by ggml's blocks",
    )
    lost = lost_weights(snapshot)
    sizes = [file.size_bytes for file in snapshot.weights]
    return ModelFacts(
        library="gguf",
        model_type=metadata.architecture,
        architecture=None,
        family=_family(metadata, plan_is_known=plan is not None),
        layers=layers,
        hidden_size=metadata.count("embedding_length"),
        intermediate_size=metadata.count("feed_forward_length"),
        attention_heads=metadata.count("attention.head_count"),
        kv_heads=metadata.count("attention.head_count_kv", "attention.head_count"),
        head_dim=_head_dim(metadata),
        vocab_size=_vocab_size(metadata, named.get(_EMBEDDING)),
        max_positions=metadata.count("context_length"),
        tied_embeddings=_tied(named),
        dtype=_DTYPE,
        parameters=None if lost else parameters,
        parameters_reason=f"`{lost[0]}` could not be read" if lost else None,
        tensor_groups=() if lost else groups,
        stored_bytes=None if lost else sum(group.stored_bytes for group in groups),
        file_bytes=sum(size for size in sizes if size is not None) if not lost and None not in sizes else None,
        layer_plan=plan,
        layer_plan_reason=plan_reason,
        quantization=_quantization(metadata, groups),
        moe=moe,
        disagreements=tuple(_disagreements(snapshot, metadata, layers, named.get(_EMBEDDING))),
        missing=tuple(f"{problem.path}: {problem.reason}" for problem in snapshot.problems),
    )


def _groups(snapshot: RepoSnapshot, layers: int | None) -> tuple[TensorGroup, ...]:
    tensors = [tensor for file in snapshot.weights for tensor in file.tensors]

    def extras_of(names: Sequence[str]) -> list[str | None]:
        """Layers past the model's own predict further tokens; llama.cpp skips them unless it drafts with them (load_mtp)."""
        blocks = map(_BLOCK.match, names)
        return ["mtp" if block and layers is not None and int(block[1]) >= layers else None for block in blocks]

    return tuple(_as_gguf(group) for group in group_tensors(by_name(tensors), extras_of=extras_of))


def _as_gguf(group: TensorGroup) -> TensorGroup:
    role = role_of(group.pattern)
    return replace(group, role=role, kind=_kind(role, group), extra=group.extra if group.extra == "mtp" else None)


@cache
def role_of(pattern: str) -> str:
    """What tensors of this GGUF name are for; ``"other"`` where no row of the table matches."""
    return next((role for match, role in _roles() if match.search(pattern)), "other")


@cache
def _roles() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["match"]), row["role"]) for row in table(TABLE)["role"])


def _kind(role: str, group: TensorGroup) -> str:
    if role in ("norm", "buffer"):
        return role
    if role == "expert" and len(group.shape) >= 2:
        return "experts"
    if len(group.shape) < 2:
        return "bias" if group.pattern.endswith("bias") else "vector"
    if role == "embedding":
        return "embedding"
    return "linear" if len(group.shape) == 2 else "conv"


def _layers(metadata: GgufMetadata) -> Sourced[int]:
    """Blocks without those that predict further tokens (llama-hparams.cpp, n_layer)."""
    blocks, ahead = metadata.count("block_count"), metadata.count("nextn_predict_layers").value or 0
    if blocks.value is None:
        return blocks
    if blocks.value > MAX_LAYERS:
        return Sourced(value=None, where=f"{blocks.where} is {blocks.value}, more than any model has")
    if not 0 < ahead < blocks.value:
        return blocks
    return Sourced(value=blocks.value - ahead, where=f"{blocks.where} - nextn_predict_layers")


def _head_dim(metadata: GgufMetadata) -> Sourced[int]:
    """The width of one query head: of a latent cache's model, before its keys are compressed."""
    said = metadata.count("attention.key_length_mla", "attention.key_length")
    width, heads = metadata.count("embedding_length").value, metadata.count("attention.head_count").value
    if said.value is not None or width is None or not heads or width % heads:
        return said
    return Sourced(value=width // heads, where="rule:embedding_length // attention.head_count")


def _vocab_size(metadata: GgufMetadata, embedding: TensorGroup | None) -> Sourced[int]:
    said = metadata.count("vocab_size")
    if said.value is not None:
        return said
    listed = metadata.length("tokenizer.ggml.tokens")
    if listed.value is not None or embedding is None or len(embedding.shape) != 2:
        return listed
    return Sourced(value=embedding.shape[0], where=f"header:shape of {_EMBEDDING}")


def _tied(named: dict[str, TensorGroup]) -> Sourced[bool]:
    if _EMBEDDING not in named:
        return Sourced(value=None, where=f"no tensor {_EMBEDDING}")
    return Sourced(value=_HEAD not in named, where=f"header:whether {_HEAD} is stored beside {_EMBEDDING}")


def _experts(metadata: GgufMetadata) -> MixtureOfExperts | None:
    experts = metadata.count("expert_count")
    if not experts.value or experts.value < 2:
        return None
    return MixtureOfExperts(
        experts=experts,
        experts_per_token=metadata.count("expert_used_count"),
        expert_intermediate_size=metadata.count("expert_feed_forward_length", "feed_forward_length"),
    )


def _quantization(metadata: GgufMetadata, groups: tuple[TensorGroup, ...]) -> Quantization | None:
    """The mixture of types under its usual name; ``None`` where all tensors are of plain types."""
    packed = [group for group in groups if group.dtype not in bits_of()]
    if not packed:
        return None
    number = metadata.general("general.file_type")
    label = table(TABLE)["file_type"].get(str(number)) if type(number) is int else None
    if label is not None:
        return Quantization(method=f"gguf {label}", bits=None, where="gguf:general.file_type")
    most = max(packed, key=lambda group: group.stored_bytes)
    return Quantization(method=f"gguf {most.dtype}", bits=None, where="header:type of most bytes")


def _family(
    metadata: GgufMetadata, *, plan_is_known: bool
) -> Literal["decoder", "encoder", "encoder-decoder", "other", "unknown"]:
    architecture = metadata.architecture
    if architecture in table(TABLE)["encoders"]:
        return "encoder"
    if architecture == "t5":
        return "encoder-decoder"
    if architecture is None or architecture == "clip" or architecture in table(TABLE)["without_cache"]:
        return "unknown" if architecture is None else "other"
    return "decoder" if plan_is_known or architecture in table(TABLE)["known"] else "unknown"


def _disagreements(
    snapshot: RepoSnapshot, metadata: GgufMetadata, layers: Sourced[int], embedding: TensorGroup | None
) -> Iterator[Disagreement]:
    """The metadata against the tensor table, which is what is loaded."""
    blocks = {
        int(found[1]) for file in snapshot.weights for tensor in file.tensors if (found := _BLOCK.match(tensor.name))
    }
    is_whole = not lost_weights(snapshot)
    said = metadata.count("block_count")
    if blocks and is_whole and layers.value is not None and len(blocks) not in (said.value, layers.value):
        yield _disagreement("layers", said.value, len(blocks), said.where)
    width = metadata.count("embedding_length")
    if embedding is None or len(embedding.shape) != 2:
        return
    if width.value is not None and width.value != embedding.shape[1]:
        yield _disagreement("hidden_size", width.value, f"{_EMBEDDING}: {embedding.shape[1]}", width.where)
    vocab = metadata.count("vocab_size")
    if vocab.value is not None and vocab.value != embedding.shape[0]:
        yield _disagreement("vocab_size", vocab.value, f"{_EMBEDDING}: {embedding.shape[0]}", vocab.where)


def _disagreement(subject: str, said: object, seen: object, where: str) -> Disagreement:
    return Disagreement(subject=subject, config_says=str(said), files_say=str(seen), used="the metadata's", where=where)
