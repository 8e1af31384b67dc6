"""Values out of a config.json: under which key, of which type, and whether the file or only the configuration class says so.

A value that the file leaves out may come from the class that transformers builds for the model type. Such a value is marked
``default:<model type>``, because a class default is not the checkpoint's word, or ``rule:...`` where the class computes it from keys that
are known. What a class computes in a way the table cannot express stays unknown, with a reason.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any, TypeVar

from hubaudit.facts.config_classes import (
    ABSENT,
    ConfigClass,
    calculate,
    common_spellings,
    config_class,
    language_sections,
    operands,
    synonyms,
)
from hubaudit.types import NOTHING, Config, Json, Sourced

T = TypeVar("T")

_LARGEST_COUNT = 2**53  # beyond it JSON numbers lose their last digits in half of the world's readers
_SHOWN_CHARACTERS = 40
#: Of a model type, a class, a method of quantization: what is longer was not written to be one, and megabytes of it would be a report's.
LONGEST_NAME = 1_000
_SHAPE_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads")


class ConfigReader:
    """Reads one configuration, or one section of it, by transformers' canonical names or by the file's own.

    ``file`` and ``path`` only serve ``where``: ``config.json#text_config.num_hidden_layers``. ``model_type`` overrides what the
    configuration says of itself. Nothing that a file may hold makes a method raise.
    """

    def __init__(
        self, config: Config | Json, *, file: str = "config.json", path: str = "", model_type: str | None = None
    ) -> None:
        self._config: Config = config if isinstance(config, Mapping) else NOTHING
        self._file = file
        self._path = path
        self._fills: Mapping[str, Json] = NOTHING  # what the wrapping class puts in where this section lacks it
        self._filled_by: str | None = None
        self._pushed: AbstractSet[str] = frozenset()  # what the wrapping class computes for this section
        self._rewritten: AbstractSet[str] = frozenset()  # what the wrapping class does not keep as this section has it
        self.model_type: str | None = model_type or _named_type(self._config)

    # --- values --------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Sourced[Json]:
        """The value of ``name``: what the file says, else the class's rule, else the class's default, else ``None`` and why.

        An explicit null in the file is an answer, and is replaced only where the class itself replaces it by a known rule.
        """
        key = self._key_in_file(name)
        if key is None:
            return self._from_class(name)
        value = self._config[key]
        if value is None:
            return self._null(name, key)
        if isinstance(value, str) and self._class is not None and self._class.is_placeholder(name, value):
            return self._from_class(name)
        return Sourced(value=value, where=self._where(key))

    def says(self, name: str) -> bool:
        """Whether the file itself has ``name``, under any of its spellings, even as null."""
        return self._key_in_file(name) is not None

    def is_null(self, name: str) -> bool:
        """Whether ``name`` is known to be null: the file says so, or leaves it to a class whose default is null."""
        answer = self.get(name)
        return answer.value is None and answer.where.endswith(" is null")

    def integer(self, *names: str) -> Sourced[int]:
        """The first of ``names`` with a usable count: an integer (or an integral float) from 0 to 2**53; never a bool."""
        return self._first(names, _as_count, "a count")

    def number(self, *names: str) -> Sourced[float]:
        """The first of ``names`` with a finite number; never a bool."""
        return self._first(names, _as_number, "a finite number")

    def flag(self, *names: str) -> Sourced[bool]:
        """The first of ``names`` that is true or false; 0, 1 and "true" are not."""
        return self._first(names, lambda value: value if isinstance(value, bool) else None, "true or false")

    def string(self, *names: str) -> Sourced[str]:
        """The first of ``names`` that is a string."""
        return self._first(names, lambda value: value if isinstance(value, str) else None, "a string")

    def integers(self, *names: str) -> Sourced[tuple[int, ...]]:
        """The first of ``names`` that is a list of counts."""
        return self._first(names, lambda value: _as_tuple(value, _as_count), "a list of counts")

    def strings(self, *names: str) -> Sourced[tuple[str, ...]]:
        """The first of ``names`` that is a list of strings."""
        return self._first(
            names,
            lambda value: _as_tuple(value, lambda item: item if isinstance(item, str) else None),
            "a list of strings",
        )

    # --- sections ------------------------------------------------------------------------------------------------------

    def section(self, name: str) -> ConfigReader | None:
        """The nested configuration ``name``; ``None`` where the file has no object there.

        Its model type is the one transformers reads it with: the wrapping class's own for that section, else what the section says
        of itself, else the wrapping class's fallback.
        """
        key = self._key_in_file(name)
        value = None if key is None else self._config[key]
        if key is None or not isinstance(value, Mapping):
            return None
        return self._inner_reader(name, key, value, given=True)

    def language_model(self) -> ConfigReader:
        """The section that describes the (decoder) language model, or this reader where the configuration is flat.

        transformers' ``get_text_config(decoder=True)`` decides where it knows the model type. Elsewhere, and where the file keeps no shape
        of its own but has a section that does, well-known section names decide.
        """
        if self._class is not None and self._class.decoder_section is not None:
            return self._walk(self._class.decoder_section.split("."))
        if self._class is not None and self._has_shape():
            return self
        for name in language_sections():
            inner = self.section(name)
            found = None if inner is None else inner.language_model()
            if found is not None and found._has_shape():
                return found
        return self

    def _has_shape(self) -> bool:
        return any(self.says(name) for name in _SHAPE_KEYS)

    def _has_shape_of_nobody(self) -> bool:
        """Whether the file gives a shape where the class has none: a text model's own file under the name of a composite one."""
        return any(self.says(name) and not (self._class is not None and self._class.has(name)) for name in _SHAPE_KEYS)

    def _walk(self, steps: list[str]) -> ConfigReader:
        reader = self
        for step in steps:
            inner = reader.section(step)
            if inner is None:
                if reader._class is not None and reader._class.is_flat and reader._class.decoder_section == step:
                    kind = reader._section_type(step, None)
                    return ConfigReader(reader._config, file=self._file, path=reader._path, model_type=kind)
                if reader._has_shape_of_nobody():
                    return reader
                inner = reader._inner_reader(step, step, NOTHING, given=False)
            reader = inner
        return reader

    def _inner_reader(self, name: str, key: str, value: Config, *, given: bool) -> ConfigReader:
        kind = self._section_type(name, _named_type(value))
        reader = ConfigReader(value, file=self._file, path=self._inner(key), model_type=kind)
        if self._class is not None:
            reader._fills, reader._filled_by = self._class.fills(name, kind, given=given), self._class.name
            pushes = self._class.pushes_into(name)
            reader._pushed = {inner for inner, keys in pushes if not all(map(self._keeps_default, keys))}
            reader._rewritten = self._class.rewrites_in(name) | reader._pushed
        return reader

    def _section_type(self, name: str, named: str | None) -> str | None:
        return named if self._class is None else self._class.section_type(name, named)

    # --- what the file says ----------------------------------------------------------------------------------------------

    def _key_in_file(self, name: str) -> str | None:
        return next((key for key in self._spellings(name) if key in self._config), None)

    def _spellings(self, name: str) -> Iterator[str]:
        """The keys under which the file may give ``name``, the likeliest first."""
        yield name
        yield from common_spellings(name)
        yield from synonyms(name, self._config) if self._class is None else self._class.spellings(name)

    def _null(self, name: str, key: str) -> Sourced[Json]:
        said = f"{self._where(key)} is null"
        rule: Any = ABSENT if self._class is None else self._class.null_rule(name)
        if self._class is None or rule is ABSENT:
            return Sourced(value=None, where=said)
        if rule is None:
            return Sourced(value=None, where=f"{said}, and the class {self._class.name} computes it")
        return self._by_rule(self._class, name, rule)

    # --- what the class says -----------------------------------------------------------------------------------------------

    def _from_class(self, name: str) -> Sourced[Json]:
        said = f"{self._file}#{self._path}" if self._path else self._file
        said = f"{said} does not say {name}"
        if self._class is None:
            kind = (
                "names no model type"
                if self.model_type is None
                else f"model type {_shown(self.model_type)} is not in the table"
            )
            return Sourced(value=None, where=f"{said}, and {kind}")
        own = self._class.own(name)
        if not self._pushed.isdisjoint((own, name)):
            return Sourced(value=None, where=f"{said}, and the class {self._filled_by} computes it")
        if own in self._fills:
            return _default(self._filled_by, self._fills[own])
        how = self._class.derived(name)
        if how is not None:
            return self._derived(self._class, name, how, said)
        value = self._class.default(name)
        if value is ABSENT:
            return Sourced(value=None, where=f"{said}, nor does the class {self._class.name} have it")
        return _default(self._class.name, value)

    def _derived(self, known: ConfigClass, name: str, how: Mapping[str, Any], said: str) -> Sourced[Json]:
        if "rule" in how:
            return self._by_rule(known, name, how["rule"])
        if "otherwise" in how and all(self._keeps_default(key) for key in how["from"]):
            return _default(known.name, how["otherwise"])
        return Sourced(value=None, where=f"{said}, and the class {known.name} computes it")

    def _keeps_default(self, key: str) -> bool:
        """Whether the file leaves ``key`` (``"<section>.<key>"`` for one inside a section) to the class, or repeats its default."""
        section, dot, inner = key.partition(".")
        if dot:
            reader = self.section(section)
            return reader is None or reader._keeps_default(inner)
        in_file = self._key_in_file(key)
        if self._class is None or in_file is None:
            return in_file is None and key not in self._fills
        value, default = self._config[in_file], self._class.default(key)
        return type(value) is type(default) and value == default

    def _by_rule(self, known: ConfigClass, name: str, rule: str) -> Sourced[Json]:
        words = operands(rule)
        found = {word: self._operand(word) for word in words if not word.isdecimal()}
        value = calculate(rule, [int(word) if word.isdecimal() else _whole(found[word].value) for word in words])
        told = f"{known.own(name)} = {rule}"
        if value is None:
            return Sourced(
                value=None, where=f"the class {known.name} computes {told} ({'; '.join(map(_told, found.values()))})"
            )
        return Sourced(value=value, where=f"rule:{known.name}: {told}")

    def _operand(self, name: str) -> Sourced[Json]:
        section, dot, inner = name.partition(".")
        if not dot:
            return self.get(name)
        return (self.section(section) or self._inner_reader(section, section, NOTHING, given=False)).get(inner)

    # --- the class -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _class(self) -> ConfigClass | None:
        return config_class(self.model_type, self._config)

    @property
    def known_type(self) -> str | None:
        """The model type whose class transformers reads this configuration with; ``None`` where it has none.

        It differs from ``model_type`` where transformers reads one type as another.
        """
        return None if self._class is None else self._class.name

    def rewrites(self, name: str) -> bool:
        """Whether transformers' class is known not to keep a value given for ``name`` as it stands (T5's ``tie_word_embeddings``)."""
        return name in self._rewritten or (self._class is not None and self._class.rewrites(name))

    def _first(self, names: tuple[str, ...], convert: Callable[[Json], T | None], wanted: str) -> Sourced[T]:
        reasons: list[str] = []
        in_file = [name for name in names if self.says(name)]
        # What the file says badly is not papered over with a default: only names that it leaves out altogether are asked of the class.
        for name in in_file or names:
            answer = self.get(name)
            if answer.value is None:
                reasons.append(answer.where)
                continue
            value = convert(answer.value)
            if value is not None:
                return Sourced(value=value, where=answer.where)
            reasons.append(f"{_told(answer)}, not {wanted}")
        return Sourced(value=None, where="; ".join(dict.fromkeys(reasons)) or "nothing was asked for")

    def _where(self, key: str) -> str:
        return f"{self._file}#{self._inner(key)}"

    def _inner(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _named_type(config: Config) -> str | None:
    named = config.get("model_type")
    return named if isinstance(named, str) and 0 < len(named) <= LONGEST_NAME else None


def _default(model_type: str | None, value: Json) -> Sourced[Json]:
    return Sourced(value=value, where=f"default:{model_type}" if value is not None else f"default:{model_type} is null")


def _as_count(value: Json) -> int | None:
    value = _whole(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_COUNT:
        return None
    return value


def _whole(value: Json) -> Json:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return float(value) if abs(value) <= _LARGEST_COUNT else None
    return value if math.isfinite(value) else None


def _as_tuple(value: Json, convert: Callable[[Json], T | None]) -> tuple[T, ...] | None:
    if not isinstance(value, list):
        return None
    items = [convert(item) for item in value]
    return None if any(item is None for item in items) else tuple(item for item in items if item is not None)


def _told(answer: Sourced[Json]) -> str:
    return answer.where if answer.value is None else f"{answer.where} is {_shown(answer.value)}"


def _shown(value: Json) -> str:
    try:
        text = reprlib.repr(value)
    except ValueError:  # an integer of more digits than Python agrees to print
        text = "an integer of thousands of digits"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
