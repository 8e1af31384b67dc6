"""Values out of a config.json: under which key, of which type, and whether the file or only the configuration class says so.

A value that the file leaves out may come from the class that transformers builds for the model type. Such a value is marked
``default:<model type>``, because a class default is not the checkpoint's word, or ``rule:...`` where the class computes it from keys that
are known. What a class computes in a way the table cannot express stays unknown, with a reason.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from hubaudit.data import table
from hubaudit.types import NOTHING, Config, Json, Sourced

T = TypeVar("T")

_ABSENT: Final = object()
_LARGEST_COUNT = 2**53  # beyond it JSON numbers lose their last digits in half of the world's readers
_SHOWN_CHARACTERS = 40
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
        named = self._config.get("model_type")
        self.model_type: str | None = model_type or (named if isinstance(named, str) and named else None)

    # --- values --------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Sourced[Json]:
        """The value of ``name``: what the file says, else the class's rule, else the class's default, else ``None`` and why.

        An explicit null in the file is an answer, and is replaced only where the class itself replaces it by a known rule.
        """
        key = self._key_in_file(name)
        if key is None:
            return self._from_class(name)
        value = self._config[key]
        if value is not None:
            return Sourced(value=value, where=self._where(key))
        return self._null(name, key)

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
        return ConfigReader(value, file=self._file, path=self._inner(key), model_type=self._section_type(name, value))

    def language_model(self) -> ConfigReader:
        """The section that describes the (decoder) language model, or this reader where the configuration is flat.

        transformers' ``get_text_config(decoder=True)`` decides where it knows the model type; elsewhere well-known section names do.
        """
        entry = self._entry()
        chosen = entry.get("decoder_config") or entry.get("text_config")
        if isinstance(chosen, str):
            return self._walk(chosen.split("."), flat=entry.get("flat") == chosen)
        if any(self.says(name) for name in _SHAPE_KEYS):
            return self
        for row in table("config_synonyms.toml")["section"]:
            inner = self.section(row["key"])
            if inner is not None:
                return inner.language_model()
        return self

    def _walk(self, steps: list[str], *, flat: bool) -> ConfigReader:
        reader = self
        for step in steps:
            inner = reader.section(step)
            if inner is None:
                kind = reader._section_type(step, NOTHING)
                if flat:
                    return ConfigReader(reader._config, file=self._file, path=reader._path, model_type=kind)
                if any(reader.says(name) for name in _SHAPE_KEYS):
                    return reader
                inner = ConfigReader(NOTHING, file=self._file, path=reader._inner(step), model_type=kind)
            reader = inner
        return reader

    def _section_type(self, name: str, value: Config) -> str | None:
        entry = self._entry()
        fixed = entry.get("sub_configs", {}).get(name)
        if fixed is not None:
            return str(fixed)
        named = value.get("model_type")
        if isinstance(named, str) and named:
            return named
        fallback = entry.get("auto_sub_configs", {}).get(name)
        return None if fallback is None else str(fallback)

    # --- what the file says ----------------------------------------------------------------------------------------------

    def _key_in_file(self, name: str) -> str | None:
        return next((key for key in self._spellings(name) if key in self._config), None)

    def _spellings(self, name: str) -> Iterator[str]:
        """The keys under which the file may give ``name``, in the order in which transformers lets one win over another."""
        yield name
        common: dict[str, str] = _defaults().get("common_aliases", {})
        yield from (other for other, own in common.items() if own == name)
        entry = self._entry()
        if not self._known():
            yield from self._synonyms(name)
            return
        aliases: dict[str, str] = entry.get("aliases", {})
        own = aliases.get(name, name)
        yield from (alias for alias, target in aliases.items() if target == own)
        yield own

    def _synonyms(self, name: str) -> Iterator[str]:
        for row in table("config_synonyms.toml")["synonym"]:
            if row["canonical"] == name and all(
                self._config.get(key) == value for key, value in row.get("when", {}).items()
            ):
                yield row["key"]

    def _null(self, name: str, key: str) -> Sourced[Json]:
        said: Sourced[Json] = Sourced(value=None, where=f"{self._where(key)} is null")
        nulls = self._entry().get("nulls", {})
        own = self._own(name)
        if own not in nulls:
            return said
        if nulls[own] is None:
            return Sourced(value=None, where=f"{self._where(key)} is null, and the class {self.model_type} computes it")
        return self._by_rule(own, nulls[own])

    # --- what the class says -----------------------------------------------------------------------------------------------

    def _from_class(self, name: str) -> Sourced[Json]:
        said = f"{self._place()} does not say {name}"
        if not self._known():
            reason = (
                "and names no model type"
                if self.model_type is None
                else f"and model type {_shown(self.model_type)} is not in the table"
            )
            return Sourced(value=None, where=f"{said}, {reason}")
        entry, own = self._entry(), self._own(name)
        if own in entry.get("derived", {}):
            return self._derived(own, entry["derived"][own], said)
        defaults: dict[str, Json] = entry["defaults"]
        value = defaults.get(own, _defaults()["common_defaults"].get(own, _ABSENT))
        if value is _ABSENT:
            return Sourced(value=None, where=f"{said}, nor does the class {self.model_type} have it")
        where = f"default:{self.model_type}"
        return Sourced(value=value, where=where if value is not None else f"{where} is null")

    def _derived(self, own: str, how: Mapping[str, Any], said: str) -> Sourced[Json]:
        if "rule" in how:
            return self._by_rule(own, how["rule"])
        if "otherwise" in how and all(self._keeps_default(key) for key in how["from"]):
            where = f"default:{self.model_type}"
            return Sourced(value=how["otherwise"], where=where if how["otherwise"] is not None else f"{where} is null")
        return Sourced(value=None, where=f"{said}, and the class {self.model_type} computes it")

    def _keeps_default(self, key: str) -> bool:
        """Whether the file leaves ``key`` (``"<section>.<key>"`` for one inside a section) to the class, or repeats its default."""
        section, dot, inner = key.partition(".")
        if dot:
            reader = self.section(section)
            return reader is None or reader._keeps_default(inner)
        in_file = self._key_in_file(key)
        if in_file is None:
            return True
        default = (
            self._entry().get("defaults", {}).get(self._own(key), _defaults()["common_defaults"].get(key, _ABSENT))
        )
        return type(self._config[in_file]) is type(default) and self._config[in_file] == default

    def _by_rule(self, own: str, rule: str) -> Sourced[Json]:
        """``own`` by one of the table's rules: ``a``, ``k * a``, ``a // b``, ``a * b``, ``a + b``, ``ceil(a / 16)``."""
        if " " not in rule:
            source = self._operand(rule)
            if source.value is None:
                return Sourced(
                    value=None, where=f"the class {self.model_type} takes {own} from {rule} ({source.where})"
                )
            return Sourced(value=source.value, where=f"rule:{self.model_type}: {own} = {rule}")
        words = rule.removeprefix("ceil(").removesuffix(")").split()
        left, right = (
            int(word) if word.isdecimal() else _count_of(self._operand(word)) for word in (words[0], words[2])
        )
        operator = "ceil" if rule.startswith("ceil(") else words[1]
        value = None if left is None or right is None else _calculate(operator, left, right)
        if value is None:
            missing = next(
                (
                    word
                    for word in (words[0], words[2])
                    if not word.isdecimal() and _count_of(self._operand(word)) is None
                ),
                words[2],
            )
            return Sourced(
                value=None,
                where=f"the class {self.model_type} computes {own} = {rule} ({self._operand(missing).where})",
            )
        return Sourced(value=value, where=f"rule:{self.model_type}: {own} = {rule}")

    def _operand(self, name: str) -> Sourced[Json]:
        section, dot, inner = name.partition(".")
        if not dot:
            return self.get(name)
        reader = self.section(section)
        kind = self._section_type(section, NOTHING)
        return (reader or ConfigReader(NOTHING, file=self._file, path=self._inner(section), model_type=kind)).get(inner)

    # --- the table ------------------------------------------------------------------------------------------------------------

    def _entry(self) -> Mapping[str, Any]:
        if self.model_type is None:
            return NOTHING
        model_types: Mapping[str, Mapping[str, Any]] = _defaults()["model_types"]
        entry = model_types.get(self.model_type, NOTHING)
        for key, other in entry.get("read_as", {}).items():
            if key in self._config:
                return model_types[other]
        return entry

    def _known(self) -> bool:
        return bool(self._entry())

    def _own(self, name: str) -> str:
        return str(self._entry().get("aliases", {}).get(name, name))

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
            reasons.append(f"{answer.where} is {_shown(answer.value)}, not {wanted}")
        return Sourced(value=None, where="; ".join(dict.fromkeys(reasons)) or "nothing was asked for")

    def _where(self, key: str) -> str:
        return f"{self._file}#{self._inner(key)}"

    def _inner(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _place(self) -> str:
        return f"{self._file}#{self._path}" if self._path else self._file


def _defaults() -> dict[str, Any]:
    return table("config_defaults.json")


def _as_count(value: Json) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_COUNT:
        return None
    return value


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


def _count_of(source: Sourced[Json]) -> int | None:
    return _as_count(source.value)


def _calculate(operator: str, left: int, right: int) -> int | None:
    if operator in ("//", "ceil") and right == 0:
        return None
    if operator == "ceil":
        return -(-left // right)
    return {"//": left // right if right else 0, "*": left * right, "+": left + right}[operator]


def _shown(value: Json) -> str:
    try:
        text = reprlib.repr(value)
    except ValueError:  # an integer of more digits than Python agrees to print
        text = "an integer of thousands of digits"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
