"""One snapshot → the facts of its model, from whichever of config and weights it holds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Literal

from hubaudit.errors import CannotAuditError
from hubaudit.facts.buffers import made_buffers
from hubaudit.facts.built import WithKnownShapes, built_tensors, elements
from hubaudit.facts.config_reader import LONGEST_NAME, ConfigReader
from hubaudit.facts.geometry import Geometry, geometry_of, no_config
from hubaudit.facts.headers import HeaderFacts, header_facts
from hubaudit.facts.kv_scheme import kv_scheme
from hubaudit.facts.layer_plan import plan_layers
from hubaudit.facts.made import made_tensors
from hubaudit.facts.packing import unpacker
from hubaudit.facts.plan_from_headers import plan_from_headers
from hubaudit.facts.quantization import Scheme, scheme_of
from hubaudit.facts.skeleton import describe
from hubaudit.facts.tensors import by_name, count_parameters, group_tensors
from hubaudit.facts.unbuilt import mark_left_over, mark_unbuilt, prediction_layers
from hubaudit.facts.witnesses import hear, index_disagreements
from hubaudit.types import Disagreement, LayerSpec, ModelFacts, ParameterCount, Quantization, TensorGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hubaudit.types import Config, RepoSnapshot, Sourced

_MAIN_CONFIG = "config.json"
_SHOWN = 8
_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_HEADED = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "ForSeq2SeqLM")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """The tensors, grouped, and where they were learned: from headers, or from the config's word that they must exist.

    ``by_class`` are values that the config leaves to its class, whose defaults are not the checkpoint's word.
    """

    groups: tuple[TensorGroup, ...]
    are_stored: bool
    where: str
    scheme: Scheme | None
    by_class: tuple[str, ...] = ()


def understand(snapshot: RepoSnapshot) -> ModelFacts:
    """What the model is, as far as the files that were read tell.

    Raises:
        CannotAuditError: neither a usable config nor any readable weights.
    """
    config = snapshot.configs.get(_MAIN_CONFIG)
    has_weights = any(file.tensors for file in snapshot.weights)
    if config is None and not has_weights:
        raise CannotAuditError(
            _nothing_read(snapshot),
            hint="hubaudit reads config.json and the headers of safetensors, GGUF and torch files",
        )
    reader = None if config is None else ConfigReader(config)
    said = no_config(_why_no_config(snapshot)) if reader is None else geometry_of(reader)
    architecture = _architecture(config)
    has_head = architecture is not None and architecture.endswith(_HEADED)
    weights, headers = _weights(snapshot, said, reader, architecture)
    quantization = _quantization(weights)
    testimony = hear(
        said,
        headers,
        has_weights=weights.are_stored,
        has_head=has_head,
        is_quantized=quantization is not None,
        model_type=None if reader is None else reader.model_type,
        implied=None if reader is None else partial(_implied, reader),
    )
    plan, plan_reason = plan_from_headers(headers) if reader is None else plan_layers(reader)
    parameters, parameters_reason = _parameters(weights, said)
    shape = {field.name: getattr(testimony.geometry, field.name) for field in fields(Geometry)}
    del shape["is_encoder_decoder"], shape["extra_layers"], shape["embedding_size"]
    return ModelFacts(
        **shape,
        library=snapshot.library_name or ("transformers" if reader is not None and reader.model_type else None),
        model_type=None if reader is None else reader.model_type,
        architecture=architecture,
        family=_family(said, plan, architecture),
        parameters=parameters,
        parameters_reason=parameters_reason,
        tensor_groups=weights.groups,
        stored_bytes=sum(group.stored_bytes for group in weights.groups) if weights.are_stored else None,
        file_bytes=_file_bytes(snapshot),
        layer_plan=plan,
        layer_plan_reason=plan_reason,
        quantization=quantization,
        kv_cache_dtype=kv_scheme(snapshot.configs),
        built=() if reader is None or quantization is not None else built_tensors(reader, parameters),
        made=() if reader is None or not weights.are_stored else made_tensors(reader, architecture, weights.groups),
        buffers=() if reader is None else made_buffers(reader, architecture),
        dropout_rates=_dropout_rates(config),
        scan_chunk_tokens=_scan_chunk(reader, plan),
        disagreements=(*testimony.disagreements, *_index_disagreements(snapshot, weights)),
        missing=tuple(_missing(snapshot, has_config=reader is not None, weights=weights)),
    )


def _implied(reader: ConfigReader) -> HeaderFacts | None:
    """What the tensors would show that the model's class builds of this config; ``None`` where the class is not described."""
    found = describe(reader)
    return None if isinstance(found, str) else header_facts(group_tensors(by_name(found.tensors)))


def _scan_chunk(reader: ConfigReader | None, plan: Sequence[LayerSpec] | None) -> Sourced[int] | None:
    """Tokens that layers of Mamba 2 take at once; ``None`` of a model that has none of them."""
    if reader is None or not any("mamba2" in layer.kind for layer in plan or ()):
        return None
    return reader.language_model().integer("mamba_chunk_size", "chunk_size")


def _dropout_rates(config: Config | None) -> tuple[tuple[str, float], ...]:
    """Rates of dropout that the config names, by its keys."""
    said = () if config is None else config.items()
    return tuple(
        (name, float(rate))
        for name, rate in said
        if ("dropout" in name or name.endswith("pdrop")) and isinstance(rate, int | float) and 0 <= rate <= 1
    )


def _weights(
    snapshot: RepoSnapshot, said: Geometry, reader: ConfigReader | None, architecture: str | None
) -> tuple[_Weights, HeaderFacts]:
    lost = lost_weights(snapshot)
    tensors = by_name([] if lost else [tensor for file in snapshot.weights for tensor in file.tensors])
    declared = scheme_of(snapshot.configs)
    scheme, held_by = unpacker(tensors, declared, [file.metadata for file in snapshot.weights])
    if scheme is not None and scheme.method is not None and scheme.method.has_flat_containers and reader is not None:
        held_by = WithKnownShapes(held_by, reader)
    extras_of = prediction_layers(tensors, layers=said.layers.value, extra_layers=said.extra_layers)
    groups = mark_unbuilt(
        group_tensors(tensors, extras_of=extras_of, held_by=held_by),
        architecture=architecture,
        is_tied=said.tied_embeddings.value is True,
    )
    if tensors and reader is not None and scheme is None:
        groups = _without_left_over(groups, reader)
    headers = header_facts(groups)
    if lost and reader is None:
        return _Weights(groups=(), are_stored=False, where=f"`{lost[0]}` could not be read", scheme=declared), headers
    if tensors or reader is None:
        return _Weights(groups=groups, are_stored=True, where="header:all tensors", scheme=scheme), headers
    implied = describe(reader)
    if isinstance(implied, str):
        return _Weights(groups=(), are_stored=False, where=implied, scheme=declared), headers
    by_class = tuple(name for name, where in implied.assumed.items() if where.startswith("default:"))
    groups = group_tensors(by_name(implied.tensors))
    where = "rule:the tensors that the config implies"
    return _Weights(groups=groups, are_stored=False, where=where, scheme=declared, by_class=by_class), headers


def _without_left_over(groups: tuple[TensorGroup, ...], reader: ConfigReader) -> tuple[TensorGroup, ...]:
    """The groups, those marked that the class of the config does not build; all of them where it is not described, or builds as much as they hold."""
    found = describe(reader)
    if isinstance(found, str):
        return groups
    built = (*found.tensors, *found.buffers)
    loaded = sum(group.parameters or 0 for group in groups if group.extra is None)
    if loaded <= elements(built):
        return groups
    return mark_left_over(groups, group_tensors(by_name(built)))


def lost_weights(snapshot: RepoSnapshot) -> tuple[str, ...]:
    """Weight files that belong to what was chosen and could not be read: with one of them gone, the others are no count of the model."""
    wanted = {path for one in snapshot.chosen for path in (*one.files, *one.missing)}
    return tuple(sorted(wanted.difference(file.path for file in snapshot.weights)))


def _parameters(weights: _Weights, said: Geometry) -> tuple[ParameterCount | None, str | None]:
    if not weights.groups:
        return None, weights.where
    unknown = [group for group in weights.groups if group.parameters is None]
    if unknown:
        return None, _why_unknown(weights.scheme, unknown[0])
    moe = said.moe
    count = count_parameters(
        weights.groups,
        experts=None if moe is None else moe.experts.value,
        experts_per_token=None if moe is None else moe.experts_per_token.value,
        is_moe=moe is not None,
        where=weights.where,
    )
    return count, None


def _why_unknown(scheme: Scheme | None, group: TensorGroup) -> str:
    method = "an unknown method" if scheme is None else f"{scheme.name!a} ({scheme.where})"
    if scheme is None or scheme.method is None:
        return f"weights quantized by {method}, of which hubaudit does not know how it packs them"
    shape = ", ".join(map(str, group.shape))
    return f"weights quantized by {method}: how it packs {group.pattern[:100]!a}, {group.dtype} [{shape}], is not known"


def _family(
    said: Geometry, plan: tuple[LayerSpec, ...] | None, architecture: str | None
) -> Literal["decoder", "encoder", "encoder-decoder", "other", "unknown"]:
    if said.is_encoder_decoder:
        return "encoder-decoder"
    if plan is not None:
        return "encoder" if all(layer.kind == "none" for layer in plan) else "decoder"
    if architecture is not None and architecture.endswith("ForMaskedLM"):
        return "encoder"
    return "decoder" if architecture is not None and architecture.endswith(_GENERATES) else "unknown"


def _architecture(config: Config | None) -> str | None:
    named = None if config is None else config.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) and len(first) <= LONGEST_NAME else None


def _quantization(weights: _Weights) -> Quantization | None:
    """The scheme with what it takes in the files; its bits are those of the tensors where there are any."""
    scheme = weights.scheme
    if scheme is None:
        return None
    if not weights.are_stored:
        return Quantization(method=scheme.name, bits=scheme.bits, where=scheme.where)
    widths = {group.bits for group in weights.groups if group.bits is not None}
    scales = [group for group in weights.groups if group.kind == "scale"]
    return Quantization(
        method=scheme.name,
        bits=widths.pop() if len(widths) == 1 else None if widths else scheme.bits,
        where=scheme.where,
        stored_elements=sum(group.count * prod(group.shape) for group in weights.groups),
        scale_elements=sum(group.count * prod(group.shape) for group in scales),
        scale_bytes=sum(group.stored_bytes for group in scales),
    )


def _file_bytes(snapshot: RepoSnapshot) -> int | None:
    sizes = [] if lost_weights(snapshot) else [file.size_bytes for file in snapshot.weights]
    return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


def _index_disagreements(snapshot: RepoSnapshot, weights: _Weights) -> tuple[Disagreement, ...]:
    """An index against all shards; where a shard is gone, that is the finding, and not what the rest adds up to."""
    return tuple(index_disagreements(snapshot.indexes, snapshot.weights)) if weights.are_stored else ()


def _missing(snapshot: RepoSnapshot, *, has_config: bool, weights: _Weights) -> Iterator[str]:
    """What the audit had to do without, for people."""
    if not has_config:
        yield f"{_why_no_config(snapshot)}: heads, context length and cache layout come from shapes alone, or are unknown"
    if not weights.are_stored:
        told = "sizes are what the config implies" if weights.groups else f"sizes are unknown ({weights.where})"
        what = "not all weights could be read" if snapshot.weights else "no readable weights"
        yield f"{what}: {told}"
        if weights.by_class:
            more = f" and {len(weights.by_class) - _SHOWN} more" if len(weights.by_class) > _SHOWN else ""
            yield f"the config leaves to its class: {', '.join(weights.by_class[:_SHOWN])}{more}"
    for problem in snapshot.problems:
        yield f"{problem.path}: {problem.reason}"


def _why_no_config(snapshot: RepoSnapshot) -> str:
    return next(
        (f"{_MAIN_CONFIG} {problem.reason}" for problem in snapshot.problems if problem.path == _MAIN_CONFIG),
        f"no {_MAIN_CONFIG}",
    )


def _nothing_read(snapshot: RepoSnapshot) -> str:
    if snapshot.problems:
        first = snapshot.problems[0]
        return f"nothing to audit in `{snapshot.repo_id}`: `{first.path}` {first.reason}"
    return f"nothing to audit in `{snapshot.repo_id}`: no config.json and no weights that hubaudit reads"
