"""What each layer of a model keeps between tokens, by its configuration and the tables of layer plans.

``data/layer_plans.toml`` says for each model type how its layers' kinds follow from the configuration, and what the dimensions of a kind
are called there; ``data/layer_kinds.toml`` says what tensors a layer of each kind keeps. Both follow the code of transformers 5.23 (the
cache that ``generate`` makes by default). A model type that the tables do not have is not planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hubaudit.facts.layer_kinds import tensors_of
from hubaudit.facts.layer_plan_formula import NotKnownError, Scope, is_left_out
from hubaudit.facts.layer_plan_rows import Row, row_for
from hubaudit.types import NOTHING, Json, LayerSpec

if TYPE_CHECKING:
    from hubaudit.facts.config_reader import ConfigReader

_MOST_LAYERS = 1024  # beyond any model; a config that says more is broken, and must not make us build a list of it
_MOST_WINDOWS = 64  # each is a term of the cache's formula

# transformers configuration_utils.py, _LEGACY_LAYER_TYPE_REMAP
_RENAMED = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}

# transformers cache_utils.py, get_layer_types_and_kwargs: what a layer is where the configuration has no layer_types
_WITHOUT_TYPES = (
    "'sliding_attention' if sliding_window is not None else "
    "'chunked_attention' if attention_chunk_size is not None else 'full_attention'"
)


def plan_layers(config: ConfigReader) -> tuple[tuple[LayerSpec, ...] | None, str | None]:
    """What transformers keeps between tokens for each layer of the (decoder) language model, first layer first.

    Args:
        config: the whole config.json; sections are chosen as transformers chooses them for its cache.

    Returns:
        The plan and ``None``, or ``None`` and the reason why it is not known. A model without a cache has layers of kind ``none``.
    """
    found = row_for(config)
    if isinstance(found, str):
        return None, found
    row, model = found
    try:
        return _Planner(model, row, _of_the_whole(config, model)).plan(), None
    except NotKnownError as error:
        return None, f"{model.model_type}: {error}"


def _of_the_whole(config: ConfigReader, model: ConfigReader) -> dict[str, Json]:
    """What formulas may ask of the whole configuration, where the language model is a section of it."""
    architectures = config.strings("architectures").value or ("",)
    encoder_decoder = config.flag("is_encoder_decoder").value or model.flag("is_encoder_decoder").value
    return {"architecture": architectures[0], "encoder_decoder": encoder_decoder is True}


def _named(kind: str, scope: Scope) -> str:
    """A kind of the table: by name, or by a formula."""
    return str(scope.evaluate(kind)) if " " in kind else kind


class _Planner:
    """Applies one row of the table to one configuration."""

    def __init__(self, model: ConfigReader, row: Row, whole: Mapping[str, Json]) -> None:
        self._model = model
        self._row = row
        self._whole = whole
        self._counted = self._scope({})
        self._overrides = self._per_layer_overrides()
        self._alike: dict[str, LayerSpec] = {}

    def plan(self) -> tuple[LayerSpec, ...]:
        """All layers; ``NotKnownError`` where a value that one of them needs is not known."""
        count = self._counted.count(self._row.layers)
        if count > _MOST_LAYERS:
            raise NotKnownError(f"{count} layers are more than any model has")
        if count == 0 and not self._row.keeps_nothing:
            raise NotKnownError(f"no layers ({self._row.layers} is 0)")
        types = self._types(count)
        layers = tuple(self._layer(index, types) for index in range(count))
        windows = {tensor.window_tokens for layer in layers for tensor in layer.tensors}
        if len(windows) > _MOST_WINDOWS:
            raise NotKnownError(f"{len(windows)} different windows are more than any model has")
        return layers

    def _layer(self, index: int, types: list[str]) -> LayerSpec:
        """One layer; those of one type whose formulas do not look at the layer's place are worked out once."""
        known = None if str(index) in self._overrides else self._alike.get(types[index])
        return self._worked_out(index, types) if known is None else replace(known, index=index)

    def _worked_out(self, index: int, types: list[str]) -> LayerSpec:
        given: dict[str, Json] = {"layer": index, "layers": len(types), "type": types[index], "types": list(types)}
        scope = self._scope(given, self._overrides.get(str(index), NOTHING))
        scope.wheres.update(self._counted.wheres)
        kind = self._kind(types[index], scope)
        owner = None if self._row.shares is None else scope.evaluate(self._row.shares)
        tensors = tensors_of(kind if owner is None else _named(self._row.shared_kind, scope), scope)
        layer = LayerSpec(
            index=index,
            kind=kind,
            tensors=tensors,
            where="; ".join([*scope.wheres, self._row.source]),
            shares_cache_with=owner,
        )
        if not scope.depends_on_layer and str(index) not in self._overrides:
            self._alike[types[index]] = layer
        return layer

    def _kind(self, layer_type: str, scope: Scope) -> str:
        kind = self._row.kinds.get(layer_type)
        if kind is None:
            raise NotKnownError(f"a layer of type {layer_type!r:.40} is not in the table for it")
        return _named(kind, scope)

    def _types(self, count: int) -> list[str]:
        said = self._said_types()
        if said is None:
            return [self._type(index, count) for index in range(count)]
        if len(said) < count:
            raise NotKnownError(f"its list of layer types has {len(said)} entries for {count} layers")
        return [_RENAMED.get(name, name) for name in said[:count]]

    def _said_types(self) -> list[str] | None:
        """The list that the file gives, or the class's own default list; ``None`` where a rule decides."""
        if self._row.types_key is None:
            return None
        answer = self._model.strings(self._row.types_key)
        by_file = answer.value is not None and not answer.where.startswith("default:")
        if answer.value is None or not (by_file or self._row.type is None):
            self._check_types_known(answer.where)
            return None
        self._counted.wheres[answer.where] = None
        return list(answer.value)

    def _check_types_known(self, where: str) -> None:
        if self._row.type is None and not (where.endswith(" is null") or is_left_out(where)):
            raise NotKnownError(where)

    def _type(self, index: int, count: int) -> str:
        scope = self._scope({"layer": index, "layers": count}, self._overrides.get(str(index), NOTHING))
        found = scope.evaluate(self._row.type or _WITHOUT_TYPES)
        self._counted.wheres.update(scope.wheres)
        if not isinstance(found, str):
            raise NotKnownError(f"the type of layer {index} is {found!r:.40}, not a name")
        return _RENAMED.get(found, found)

    def _scope(self, given: Mapping[str, Json], overrides: Mapping[str, Json] = NOTHING) -> Scope:
        return Scope(self._model, self._row.dimensions, given={**self._whole, **given}, overrides=overrides)

    def _per_layer_overrides(self) -> Mapping[str, Mapping[str, Any]]:
        """Keys of ``per_layer_config`` (transformers configuration_utils.py): those whose value differs in single layers, by layer index."""
        said = self._model.get("per_layer_config").value
        if not isinstance(said, Mapping):
            return {}
        return {index.lstrip("0") or "0": keys for index, keys in said.items() if isinstance(keys, Mapping)}
