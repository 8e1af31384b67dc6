"""Config and weight files as two witnesses: one fills what the other leaves out, and where they disagree, that is reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.facts.geometry import LATENT_HEAD
from hubaudit.types import Disagreement, Sourced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hubaudit.facts.geometry import Geometry
    from hubaudit.facts.headers import HeaderFacts
    from hubaudit.types import WeightFile, WeightIndex

_FROM_SHAPE = "header:shape of "


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """What both witnesses together say."""

    geometry: Geometry
    disagreements: tuple[Disagreement, ...]


def hear(
    geometry: Geometry,
    headers: HeaderFacts,
    *,
    has_weights: bool,
    has_head: bool,
    is_quantized: bool,
    model_type: str | None,
    implied: Callable[[], HeaderFacts | None] | None,
) -> Testimony:
    """Compare and combine.

    Args:
        geometry: what the config says.
        headers: what the weight files show.
        has_weights: whether tensors were read.
        has_head: whether the architecture is one with a language-model head, so that a missing head means a tied one.
        is_quantized: whether the config says that weights are stored in another type than they are computed with.
        model_type: the config's, of which the class itself may make tensors that its numbers do not show.
        implied: what the tensors would show that the model's class builds of the config, asked for where the two seem to differ; ``None``
            where there is no config to be compared.
    """
    if not has_weights:
        return Testimony(geometry=geometry, disagreements=())
    found: tuple[Disagreement, ...] = ()
    if implied is not None:
        found = tuple(_differences(geometry, headers, has_head=has_head, is_quantized=is_quantized))
        usual = _usual_differences(model_type) if found else frozenset()
        found = tuple(one for one in found if one.subject not in usual)
        built = implied() if found else None
        found = tuple(one for one in found if built is None or not _is_so_by_design(one.subject, headers, built))
    return Testimony(geometry=_filled(geometry, headers, has_head=has_head), disagreements=found)


def index_disagreements(indexes: Sequence[WeightIndex], weights: Sequence[WeightFile]) -> Iterator[Disagreement]:
    """Where an index claims another total than the shards hold, or a tensor that no shard has."""
    stored = sum([tensor.stored_bytes for file in weights for tensor in file.tensors])
    is_mapped = any(index.weight_map for index in indexes)  # none is where the Hub served all headers at once
    names = {tensor.name for file in weights for tensor in file.tensors} if is_mapped else set()
    for index in indexes:
        if index.total_size_bytes is not None and index.total_size_bytes != stored:
            yield Disagreement(
                subject="index total_size",
                config_says=f"{index.total_size_bytes} bytes",
                files_say=f"{stored} bytes",
                used="the files",
                where=f"{index.path}#metadata.total_size",
            )
        absent = sorted(index.weight_map.keys() - names)
        if absent:
            yield Disagreement(
                subject="index weight_map",
                config_says=f"{len(index.weight_map)} tensors",
                files_say=f"{len(absent)} of them in no shard that could be read, such as {absent[0][:100]!a}",
                used="the files",
                where=f"{index.path}#weight_map",
            )


def _filled(geometry: Geometry, headers: HeaderFacts, *, has_head: bool) -> Geometry:
    """The geometry with what only the shapes tell. Head counts stay unknown: a projection's width is their product with head_dim."""
    embedding = headers.embedding.pattern if headers.embedding else ""
    changes: dict[str, Sourced[int] | Sourced[bool] | Sourced[str]] = {}
    if geometry.layers.value is None and headers.layers is not None:
        changes["layers"] = Sourced(value=headers.layers, where=headers.layers_where)
    for name, sizes, shown in (
        ("hidden_size", headers.hidden_sizes, embedding),
        ("vocab_size", headers.vocab_sizes, embedding),
        ("intermediate_size", headers.intermediate_sizes, "the up projection"),
    ):
        fact: Sourced[int] = getattr(geometry, name)
        is_told = (
            fact.value is None or name == "intermediate_size"
        )  # some classes adjust the width that the config names
        if is_told and len(sizes) == 1 and fact.value not in sizes:
            changes[name] = Sourced(value=next(iter(sizes)), where=f"{_FROM_SHAPE}{shown}")
    if geometry.tied_embeddings.value is None and has_head and headers.embedding is not None:
        changes["tied_embeddings"] = Sourced(
            value=headers.head is None, where="header:whether a head is stored beside the embedding"
        )
    if geometry.dtype.value is None and headers.dtype is not None:
        changes["dtype"] = Sourced(value=headers.dtype, where="header:dtype of most bytes")
    return replace(geometry, **changes)  # type: ignore[arg-type]


#: The field of :class:`HeaderFacts` in which a difference shows.
_SHOWN_IN = {
    "layers": "layers",
    "hidden_size": "hidden_sizes",
    "vocab_size": "vocab_sizes",
    "attention_heads × head_dim": "query_widths",
    "kv_heads × head_dim": "key_widths",
}


def _usual_differences(model_type: str | None) -> frozenset[str]:
    """Subjects on which models of this type differ from their own config as transformers itself makes and saves them: the number is of something else."""
    return frozenset(table("by_design.json")["types"].get(model_type, ()))


def _is_so_by_design(subject: str, headers: HeaderFacts, built: HeaderFacts) -> bool:
    """Whether the model's own class, given this config, makes tensors of just these shapes.

    Then the config's number is of something else than the tensor: an embedding may be narrower than the model (ALBERT) or have rows for
    images (Mllama), and layers of several kinds have several widths.
    """
    if subject == "tied embeddings":
        return built.embedding is not None and built.head is None
    name = _SHOWN_IN.get(subject)
    return name is not None and bool(seen := getattr(headers, name)) and seen == getattr(built, name)


def _differences(
    geometry: Geometry, headers: HeaderFacts, *, has_head: bool, is_quantized: bool
) -> Iterator[Disagreement]:
    yield from _layer_count(geometry, headers)
    if geometry.embedding_size.value not in headers.hidden_sizes:  # an embedding may be narrower than the model
        yield from _size("hidden_size", geometry.hidden_size, headers.hidden_sizes, "the embedding's columns")
    yield from _vocabulary(geometry, headers)
    yield from _heads(geometry, headers)
    yield from _tying(geometry, headers, has_head=has_head)
    if not is_quantized:
        yield from _dtypes(geometry, headers)


def _layer_count(geometry: Geometry, headers: HeaderFacts) -> Iterator[Disagreement]:
    said, seen = geometry.layers.value, headers.layers
    if said is None or seen is None or geometry.is_encoder_decoder:
        return
    if said != seen and said not in headers.layer_counts:
        yield _disagreement("layers", said, seen, geometry.layers.where, used=f"the config's {said}")


def _size(subject: str, fact: Sourced[int], sizes: frozenset[int], what: str) -> Iterator[Disagreement]:
    if fact.value is not None and sizes and fact.value not in sizes:
        yield _disagreement(
            subject, fact.value, f"{what}: {_listed(sizes)}", fact.where, used=f"the config's {fact.value}"
        )


def _vocabulary(geometry: Geometry, headers: HeaderFacts) -> Iterator[Disagreement]:
    yield from _size("vocab_size", geometry.vocab_size, headers.vocab_sizes, "the embedding's rows")


def _heads(geometry: Geometry, headers: HeaderFacts) -> Iterator[Disagreement]:
    """Projection widths against heads × head_dim. Some models gate their attention with a query projection of twice the width."""
    head_dim, heads, kv_heads = geometry.head_dim.value, geometry.attention_heads.value, geometry.kv_heads.value
    if head_dim is None:
        return
    for subject, count, fact, widths, factors in (
        ("attention_heads × head_dim", heads, geometry.attention_heads, headers.query_widths, (1, 2)),
        ("kv_heads × head_dim", kv_heads, geometry.kv_heads, headers.key_widths, (1,)),
    ):
        if subject.startswith("kv") and geometry.head_dim.where == LATENT_HEAD:
            continue  # a latent cache has no keys of its own: what is called so belongs to layers of another kind
        if count is not None and widths and not widths & {count * head_dim * factor for factor in factors}:
            said = f"{count} × {head_dim} = {count * head_dim}"
            yield _disagreement(
                subject, said, f"projections of {_listed(widths)} rows", fact.where, used="the config's"
            )


def _tying(geometry: Geometry, headers: HeaderFacts, *, has_head: bool) -> Iterator[Disagreement]:
    """Untied by the config and no head in the files. The other way round is no contradiction: a tied head may be stored again."""
    if has_head and geometry.tied_embeddings.value is False and headers.embedding is not None and headers.head is None:
        yield _disagreement(
            "tied embeddings", "untied", "no head is stored", geometry.tied_embeddings.where, used="one copy, as stored"
        )


def _dtypes(geometry: Geometry, headers: HeaderFacts) -> Iterator[Disagreement]:
    said = geometry.dtype.value
    if (
        said is not None
        and headers.dtype is not None
        and said != headers.dtype
        and "config.json" in geometry.dtype.where
    ):
        stored = ", ".join(headers.float_dtypes)
        yield _disagreement(
            "dtype", said, f"stored as {stored}", geometry.dtype.where, used=f"loaded as {said}, as transformers does"
        )


def _disagreement(subject: str, said: object, seen: object, where: str, *, used: str) -> Disagreement:
    return Disagreement(subject=subject, config_says=str(said), files_say=str(seen), used=used, where=where)


def _listed(sizes: frozenset[int]) -> str:
    return ", ".join(str(size) for size in sorted(sizes)[:4])
