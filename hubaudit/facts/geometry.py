"""The shape of a model by its config's word alone: layers, widths, heads, vocabulary, context, experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import dtype_named
from hubaudit.types import MixtureOfExperts, Sourced

if TYPE_CHECKING:
    from hubaudit.facts.config_reader import ConfigReader

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
_EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)
_MLP_WIDTH = (
    "d_ff",
    "n_inner",
    "ffn_dim",
    "decoder_ffn_dim",
    "ffn_hidden_size",
    "dff",
    "dim_ff",
    "d_inner",
    "hidden_dim",
)
#: Mixtures in which every layer has experts: the one that all tokens go through, else the routed ones, are all the MLP there is.
_SHARED_WIDTH = ("shared_expert_intermediate_size", "moe_intermediate_size")
#: Classes that write four times the hidden size into their code (BloomMLP, MptMLP, OpenAI GPT's Block; transformers 5.23.0).
_FOURFOLD = frozenset({"bloom", "mpt", "openai-gpt"})
_EMBEDDING_WIDTH = ("embedding_size", "input_embedding_size", "word_embed_proj_dim")
#: How the width of a head with a latent cache is told: of a part without and a part with position.
LATENT_HEAD = "rule:qk_nope_head_dim + qk_rope_head_dim"
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What a config says of its language model (or of the model as a whole, where it is flat)."""

    layers: Sourced[int]
    hidden_size: Sourced[int]
    intermediate_size: Sourced[int]
    embedding_size: Sourced[int]
    attention_heads: Sourced[int]
    kv_heads: Sourced[int]
    head_dim: Sourced[int]
    vocab_size: Sourced[int]
    max_positions: Sourced[int]
    tied_embeddings: Sourced[bool]
    dtype: Sourced[str]
    is_encoder_decoder: bool
    moe: MixtureOfExperts | None
    extra_layers: int


def geometry_of(config: ConfigReader) -> Geometry:
    """Read the geometry; a value that the config does not give is ``None`` with the reason."""
    model = config.language_model()
    heads = model.integer("num_attention_heads")
    hidden = model.integer("hidden_size")
    return Geometry(
        layers=model.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=_intermediate_size(model, hidden),
        embedding_size=model.integer(*_EMBEDDING_WIDTH),
        attention_heads=heads,
        kv_heads=_kv_heads(model, heads),
        head_dim=_head_dim(model, hidden, heads),
        vocab_size=model.integer("vocab_size"),
        max_positions=model.integer("max_position_embeddings"),
        tied_embeddings=_tied(config, model),
        dtype=_dtype(config, model),
        is_encoder_decoder=config.flag("is_encoder_decoder").value is True,
        moe=_moe(model),
        extra_layers=model.integer("num_nextn_predict_layers", "mtp_num_layers").value or 0,
    )


def no_config(reason: str) -> Geometry:
    """The geometry of a repository without a usable config: nothing is known, for ``reason``."""
    unknown: Sourced[int] = Sourced(value=None, where=reason)
    return Geometry(
        layers=unknown,
        hidden_size=unknown,
        intermediate_size=unknown,
        embedding_size=unknown,
        attention_heads=unknown,
        kv_heads=unknown,
        head_dim=unknown,
        vocab_size=unknown,
        max_positions=unknown,
        tied_embeddings=Sourced(value=None, where=reason),
        dtype=Sourced(value=None, where=reason),
        is_encoder_decoder=False,
        moe=None,
        extra_layers=0,
    )


def _intermediate_size(model: ConfigReader, hidden: Sourced[int]) -> Sourced[int]:
    """The width of the MLP, under the names that families give it; GPT-2 and its kin leave it to the class: four times the hidden size."""
    said = model.integer("intermediate_size")
    if said.value is None and _is_left_out(said):
        others = (model.integer(name) for name in (*_MLP_WIDTH, *_SHARED_WIDTH))
        said = next((one for one in others if one.value is not None and one.where != hidden.where), said)
    if said.value is None and hidden.value is not None and model.is_null("n_inner"):
        return Sourced(value=4 * hidden.value, where="rule:4 * hidden_size, where n_inner is null")
    if said.value is None and hidden.value is not None and model.model_type in _FOURFOLD:
        return Sourced(value=4 * hidden.value, where="rule:4 * hidden_size")
    return said


def _kv_heads(model: ConfigReader, heads: Sourced[int]) -> Sourced[int]:
    """Grouped-query heads; a model whose class has no such key shares one head (multi-query) or none (multi-head)."""
    said = model.integer("num_key_value_heads", "num_kv_heads")
    multi_query = model.flag("multi_query")
    if multi_query.value is True and model.flag("new_decoder_architecture").value is not True:
        return Sourced(value=1, where=multi_query.where)
    if said.value is not None or heads.value is None or not _is_left_out(said):
        return said
    return Sourced(
        value=heads.value, where="rule:the model class has no key/value heads of its own, so every head has one"
    )


def _head_dim(model: ConfigReader, hidden: Sourced[int], heads: Sourced[int]) -> Sourced[int]:
    """The width of one query head. With a latent cache it has a part with and a part without position; the classes call the former head_dim."""
    plain, rotary = model.integer("qk_nope_head_dim"), model.integer("qk_rope_head_dim")
    if model.integer("kv_lora_rank").value and plain.value is not None and rotary.value is not None:
        return Sourced(value=plain.value + rotary.value, where=LATENT_HEAD)
    said = model.integer("head_dim")
    if said.value is not None:
        return said
    if hidden.value is None or not heads.value or hidden.value % heads.value:
        return said
    return Sourced(value=hidden.value // heads.value, where="rule:hidden_size // attention_heads")


def _tied(config: ConfigReader, model: ConfigReader) -> Sourced[bool]:
    """The wrapper's word wins over its text section's, as in transformers; a default only counts where neither says anything."""
    if not config.says("tie_word_embeddings") and model.says("tie_word_embeddings"):
        return model.flag("tie_word_embeddings")
    return config.flag("tie_word_embeddings")


def _dtype(config: ConfigReader, model: ConfigReader) -> Sourced[str]:
    for reader in (config, model):
        said = reader.string("dtype", "torch_dtype")
        if said.value is not None:
            name = dtype_named(said.value)
            return Sourced(
                value=name, where=said.where if name else f"{said.where} is {said.value[:40]!a}, no known dtype"
            )
    return Sourced(value=None, where="config.json names no dtype")


def _moe(model: ConfigReader) -> MixtureOfExperts | None:
    experts = model.integer(*_EXPERTS)
    if experts.value is None or experts.value < 2:
        return None
    return MixtureOfExperts(
        experts=experts,
        experts_per_token=model.integer(*_EXPERTS_PER_TOKEN),
        expert_intermediate_size=model.integer(*_EXPERT_WIDTH),
    )


def _is_left_out(fact: Sourced[int]) -> bool:
    """Whether a value is missing because the model's class has no such key, rather than being null or malformed in the file."""
    return "nor does the class" in fact.where
