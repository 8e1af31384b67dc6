"""The parameters of a checkpoint from its config.json alone: names, shapes and kinds, without weights and without torch.

``hubaudit/data/skeletons.toml`` describes each model type as transformers builds it (the layout language is explained in
``skeleton_layout``); the values come through ``ConfigReader``, so what the file leaves to the class is known and named. A model type,
an architecture or a value that is not described is an answer with a reason, never a guess.

Names and shapes are those of transformers' ``named_parameters()``: fused experts are one tensor, a tied head is not there, buffers and
multi-token-prediction layers are apart or absent. Shapes are those before quantization.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hubaudit.data.dtypes import bits_of, dtype_named
from hubaudit.facts.skeleton_layout import Expansion, Line, Part, lines_of
from hubaudit.facts.skeleton_scope import Reading, Unknown
from hubaudit.facts.skeleton_tables import blocks, heads, models
from hubaudit.types import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubaudit.facts.config_reader import ConfigReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """What transformers builds for a configuration.

    ``kinds`` gives the kind of each parameter's module by the parameter's name (``linear``, ``conv1d``, ``embedding``, ``norm``, ``bias``,
    ``experts``, ``conv``, ``vector``, ``other``). ``buffers`` are those that a checkpoint stores though no optimizer sees them. ``assumed``
    names the values that the file leaves to the configuration class, and where each came from (``<model type>.<name>`` in sections).
    """

    architecture: str
    tensors: tuple[TensorInfo, ...]
    kinds: Mapping[str, str]
    buffers: tuple[TensorInfo, ...] = ()
    assumed: Mapping[str, str] = field(default_factory=dict)


def skeleton(config: ConfigReader) -> tuple[tuple[TensorInfo, ...] | None, str | None]:
    """The parameters that a checkpoint of this configuration has, or ``None`` and why they are not known.

    The dtype is the configuration's own, in the spelling of safetensors; ``""`` (and 0 stored bytes) where it names none.
    """
    found = describe(config)
    return (None, found) if isinstance(found, str) else (found.tensors, None)


def describe(config: ConfigReader) -> Skeleton | str:
    """The same with kinds, stored buffers and what was assumed; a reason where the configuration is not described.

    The class is the first of ``architectures``; where the configuration names none, the one that transformers' auto class for the model
    type's usual task would build.
    """
    known = _DESCRIBED.get(config)
    if known is None:
        known = _DESCRIBED[config] = _described(config)
    return known


def _described(config: ConfigReader) -> Skeleton | str:
    reading = Reading(config)
    expansion = Expansion(_TABLES)
    try:
        row = _TABLES.row(config)
        task = _task(config, row)
        expansion.model(config, reading, task)
    except Unknown as unknown:
        return str(unknown)
    dtype = _dtype(config)
    parts = expansion.parts.values()
    return Skeleton(
        architecture=_class_name(config, row) + task,
        tensors=tuple(_tensor(part, dtype) for part in parts if part.kind != "buffer"),
        kinds={part.name: part.kind for part in parts if part.kind != "buffer"},
        buffers=tuple(_tensor(part, dtype) for part in parts if part.kind == "buffer"),
        assumed={name: where for name, where in reading.where.items() if where.startswith(("default:", "rule:"))},
    )


def described_model_types() -> tuple[str, ...]:
    """The model types that the tables describe."""
    return tuple(sorted(models()))


def described_classes(model_type: str) -> tuple[str, ...]:
    """The transformers classes that the tables describe for a model type."""
    row = models()[model_type]
    return tuple(row["types"][model_type] + task for task in _tasks(row))


def usual_class(model_type: str) -> str:
    """The class that the tables take for a described model type where a configuration names no architecture."""
    row = models()[model_type]
    return str(row["types"][model_type] + row["usual"])


class _Tables:
    """Blocks and rows of the data files."""

    def block(self, name: str) -> tuple[tuple[Line, ...], Mapping[str, str]]:
        entry = blocks().get(name)
        if entry is None:
            raise ValueError(f"the tables have no block {name!r}")
        return lines_of(entry["lines"]), entry.get("options", {})

    def model(self, reader: ConfigReader, task: str | None) -> tuple[tuple[Line, ...], Mapping[str, str], str]:
        row = self.row(reader)
        task = row.get("inner", "Model") if task is None else task
        lines = _tasks(row).get(task)
        if lines is None:
            raise Unknown(f"{_class_name(reader, row)}{task} is not described")
        return lines_of(lines), row.get("let", {}), row["body"]

    def row(self, reader: ConfigReader) -> Mapping[str, Any]:
        if reader.model_type is None:
            raise Unknown("the configuration names no model type")
        row = models().get(reader.model_type)
        if row is None:
            raise Unknown(f"model type {reader.model_type!r:.60} is not described")
        return row


_TABLES = _Tables()
#: One audit asks several times, and a large model's answer takes a tenth of a second.
_DESCRIBED: WeakKeyDictionary[ConfigReader, Skeleton | str] = WeakKeyDictionary()


def _tasks(row: Mapping[str, Any]) -> dict[str, str]:
    """Task (the end of a class name) → lines, of the row's head sets and of the row itself."""
    own: dict[str, str] = row.get("tasks", {})
    return {task: lines for name in row.get("heads", []) for task, lines in heads()[name].items()} | own


def _class_name(reader: ConfigReader, row: Mapping[str, Any]) -> str:
    return str(row["types"][reader.model_type])


def _task(config: ConfigReader, row: Mapping[str, Any]) -> str:
    """The task that ``architectures`` names. Spellings are compared without case and underscores: ``LLaMAForCausalLM`` is older than Llama's."""
    named = config.strings("architectures").value
    if not named:
        return str(row["usual"])
    prefix = _class_name(config, row)
    spelled: dict[str, str] = {_plain(other): task for other, task in row.get("instead", {}).items()}
    spelled |= {_plain(known + task): task for task in _tasks(row) for known in (prefix, *row.get("also_named", []))}
    task = spelled.get(_plain(named[0]))
    if task is None:
        raise Unknown(f"architecture {named[0]!r:.60} of model type {config.model_type!r:.60} is not described")
    return task


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _dtype(config: ConfigReader) -> str:
    named = config.string("dtype", "torch_dtype").value
    return "" if named is None else dtype_named(named) or ""


def _tensor(part: Part, dtype: str) -> TensorInfo:
    bits = bits_of()[dtype] if dtype else 0
    return TensorInfo(part.name, dtype, part.shape, -(-prod(part.shape) * bits // 8))
