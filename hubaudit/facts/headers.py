"""The shape of a model by its tensors' word alone, as a second witness beside the config."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.data.dtypes import bits_of, is_float

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hubaudit.types import TensorGroup

_EMBEDDING = re.compile(
    r"(embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|token_embd|backbone\.embeddings)\.weight$|(^|\.)shared\.weight$"
)
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out|(lm_head|cls\.predictions)\.decoder)\.weight$|^(output|head)\.weight$")
_QUERY = re.compile(r"(self_attn|attention\.self|attn|attention|self_attention)\.(q_proj|query|q_lin|wq)\.weight$")
_KEY = re.compile(r"(self_attn|attention\.self|attn|attention|self_attention)\.(k_proj|key|k_lin|wk)\.weight$")
_VALUE = re.compile(r"(self_attn|attention\.self|attn|attention|self_attention)\.(v_proj|value|v_lin|wv)\.weight$")
_UP = re.compile(r"(mlp\.(up_proj|gate_proj|fc1|dense_h_to_4h)|feed_forward\.w1|intermediate\.dense)\.weight$")
_IN_LAYERS = ("norm", "attention", "mlp", "state_space")
_OTHER_TOWERS = ("vision", "audio")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """What shapes and names tell. Each is a set of the sizes seen, because layers may differ; empty where no name is understood."""

    layers: int | None
    layers_where: str
    layer_counts: frozenset[int]
    hidden_sizes: frozenset[int]
    vocab_sizes: frozenset[int]
    intermediate_sizes: frozenset[int]
    query_widths: frozenset[int]
    key_widths: frozenset[int]
    value_widths: frozenset[int]
    embedding: TensorGroup | None
    head: TensorGroup | None
    dtype: str | None
    float_dtypes: tuple[str, ...]


def header_facts(groups: Sequence[TensorGroup]) -> HeaderFacts:
    """Read the shapes of the groups that a runtime builds, towers for other modalities left aside."""
    own = [group for group in groups if group.extra is None and group.role not in _OTHER_TOWERS]
    embedding = _one(own, _EMBEDDING)
    layers, where = _layers(own)
    dtypes = _float_dtypes(groups)
    return HeaderFacts(
        layers=layers,
        layers_where=where,
        layer_counts=_layer_counts(own),
        hidden_sizes=frozenset({embedding.shape[1]} if embedding else ()),
        vocab_sizes=frozenset({embedding.shape[0]} if embedding else ()),
        intermediate_sizes=_rows(own, _UP),
        query_widths=_rows(own, _QUERY),
        key_widths=_rows(own, _KEY),
        value_widths=_rows(own, _VALUE),
        embedding=embedding,
        head=_one([group for group in groups if group.role not in _OTHER_TOWERS and group.extra != "mtp"], _HEAD),
        dtype=dtypes[0] if dtypes else None,
        float_dtypes=dtypes,
    )


def _layers(groups: Iterable[TensorGroup]) -> tuple[int | None, str]:
    """The number of layers: how often the most frequent name with exactly one number in it comes."""
    counts: dict[str, int] = {}
    for group in groups:
        if group.pattern.split(".").count("*") == 1 and group.role in _IN_LAYERS:
            counts[group.pattern] = counts.get(group.pattern, 0) + group.count
    if not counts:
        return None, "no tensor name holds a layer number"
    pattern = max(counts, key=lambda name: counts[name])
    return counts[pattern], f"header:{pattern}"


def _layer_counts(groups: Iterable[TensorGroup]) -> frozenset[int]:
    """How often names with a number come, and how many numbers there are: layers of two kinds may share no tensor's name (Zamba2)."""
    counts: set[int] = set()
    numbers: dict[str, set[int]] = {}
    for group in groups:
        before, star, _ = group.pattern.partition("*")
        if star and group.role in _IN_LAYERS:
            counts.add(group.count)
            numbers.setdefault(before, set()).update(number for number, _ in group.numbers)
    return frozenset(counts.union(map(len, numbers.values())))


def _is_plain(group: TensorGroup) -> bool:
    """Whether the stored shape is the matrix's own: not so for packed weights, whose elements are containers."""
    return len(group.shape) == 2 and is_float(group.dtype) and bits_of().get(group.dtype, 0) >= 8


def _one(groups: Iterable[TensorGroup], name: re.Pattern[str]) -> TensorGroup | None:
    found = [group for group in groups if name.search(group.pattern) and _is_plain(group)]
    return found[0] if len(found) == 1 else None


def _rows(groups: Iterable[TensorGroup], name: re.Pattern[str]) -> frozenset[int]:
    return frozenset(group.shape[0] for group in groups if name.search(group.pattern) and _is_plain(group))


def _float_dtypes(groups: Iterable[TensorGroup]) -> tuple[str, ...]:
    """Floating dtypes of the stored tensors, the one with most bytes first. What is quantized has the dtype of its packing, not the model's."""
    stored: dict[str, int] = {}
    for group in groups:
        if is_float(group.dtype) and group.extra != "buffer" and group.kind != "scale" and group.bits is None:
            stored[group.dtype] = stored.get(group.dtype, 0) + group.stored_bytes
    return tuple(sorted(stored, key=lambda dtype: -stored[dtype]))
