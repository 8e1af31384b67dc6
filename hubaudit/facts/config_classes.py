"""What transformers' configuration class of a model type adds to a config.json: other spellings, defaults, and values computed from others.

It is read from the generated table ``data/config_defaults.json``; ``tools/config_defaults.py`` says what its rows mean and how they were
observed. For model types that transformers does not know, ``data/config_synonyms.toml`` has well-known spellings.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from hubaudit.data import table
from hubaudit.types import NOTHING, Config, Json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ABSENT: Final = object()
"""In place of a default where there is none; ``None`` is a default like any other."""


class ConfigClass:
    """One row of the table. ``name`` is the model type whose class it is."""

    def __init__(self, name: str, row: Mapping[str, Any]) -> None:
        self.name = name
        self._row = row
        self._aliases: Mapping[str, str] = row.get("aliases", NOTHING)
        self.decoder_section: str | None = row.get("decoder_config") or row.get("text_config")
        """The section that describes the language model, as a dotted path."""
        self.is_flat = row.get("flat") == self.decoder_section
        """Whether a file without that section is read as if its keys stood in it."""

    def own(self, name: str) -> str:
        """The name under which the class itself keeps ``name``."""
        return self._aliases.get(name, name)

    def spellings(self, name: str) -> Iterator[str]:
        """The keys under which a file may give ``name`` to this class."""
        own = self.own(name)
        yield from (alias for alias, target in self._aliases.items() if target == own)
        yield own

    def default(self, name: str) -> Any:
        """The constant that the class fills in for an absent ``name``; ``ABSENT`` where it has none."""
        own = self.own(name)
        return self._row["defaults"].get(own, table("config_defaults.json")["common_defaults"].get(own, ABSENT))

    def derived(self, name: str) -> Mapping[str, Any] | None:
        """How the class computes ``name`` (``rule``, or ``from`` and ``otherwise``); ``None`` where it does not."""
        found: Mapping[str, Any] | None = self._row.get("derived", NOTHING).get(self.own(name))
        return found

    def null_rule(self, name: str) -> Any:
        """The rule by which the class replaces an explicit null; ``None`` where it has no short form; ``ABSENT`` where null stays."""
        return self._row.get("nulls", NOTHING).get(self.own(name), ABSENT)

    def is_placeholder(self, name: str, value: Json) -> bool:
        """Whether ``value`` is the word by which a file asks this class to compute ``name`` (``"auto"``)."""
        return isinstance(value, str) and self._row.get("placeholders", NOTHING).get(self.own(name)) == value

    def rewrites(self, name: str) -> bool:
        """Whether the class is known not to keep a value given for ``name`` as it stands."""
        return self.own(name) in self._row.get("rewritten", ())

    def rewrites_in(self, section: str) -> frozenset[str]:
        """The keys inside ``section`` whose given value this class does not keep."""
        prefix = f"{self.own(section)}."
        return frozenset(
            name.removeprefix(prefix) for name in self._row.get("rewritten", ()) if name.startswith(prefix)
        )

    def pushes_into(self, section: str) -> Iterator[tuple[str, Sequence[str]]]:
        """Each key inside ``section`` that this class moves with keys from outside it, and those."""
        prefix = f"{self.own(section)}."
        for name, keys in self._row.get("pushes", NOTHING).items():
            if name.startswith(prefix):
                yield name.removeprefix(prefix), keys

    def has(self, name: str) -> bool:
        """Whether the class itself has ``name``, with whatever value."""
        return self.derived(name) is not None or self.default(name) is not ABSENT

    def section_type(self, name: str, named: str | None) -> str | None:
        """The model type that the section ``name`` is read with, where the section itself names ``named``."""
        own = self.own(name)
        fixed: str | None = self._row.get("sub_configs", NOTHING).get(own)
        return fixed or named or self._row.get("auto_sub_configs", NOTHING).get(own)

    def fills(self, name: str, model_type: str | None, *, given: bool) -> Mapping[str, Json]:
        """What the class puts into the section ``name`` where it is absent, or ``given`` without these keys."""
        own = self.own(name)
        if model_type not in (
            self._row.get("sub_configs", NOTHING).get(own),
            self._row.get("auto_sub_configs", NOTHING).get(own),
        ):
            return NOTHING
        found: Mapping[str, Json] = (
            self._row.get("fills", NOTHING).get(own, NOTHING).get("partial" if given else "absent", NOTHING)
        )
        return found


def config_class(model_type: str | None, config: Config) -> ConfigClass | None:
    """The class that transformers reads ``config`` with; ``None`` where it has none for the model type."""
    rows: Mapping[str, Mapping[str, Any]] = table("config_defaults.json")["model_types"]
    if model_type is not None and model_type not in rows:
        others = table("config_synonyms.toml")["model_type"]
        model_type = next((other["read_as"] for other in others if other["name"] == model_type), None)
    if model_type is None:
        return None
    name = next((other for key, other in rows[model_type].get("read_as", NOTHING).items() if key in config), model_type)
    return ConfigClass(name, rows[name])


@cache
def common_spellings(name: str) -> tuple[str, ...]:
    """Older keys that every class takes for ``name``."""
    aliases: Mapping[str, str] = table("config_defaults.json")["common_aliases"]
    return tuple(other for other, own in aliases.items() if own == name)


def synonyms(name: str, config: Config) -> Iterator[str]:
    """Keys that configurations of remote code use for ``name``, and that mean it in ``config``."""
    for row in table("config_synonyms.toml")["synonym"]:
        if row["canonical"] == name and all(
            config.get(key) == value for key, value in row.get("when", NOTHING).items()
        ):
            yield row["key"]


def language_sections() -> Iterator[str]:
    """Sections that hold the language model in configurations of remote code, the likeliest first."""
    yield from (row["key"] for row in table("config_synonyms.toml")["section"])


def operands(rule: str) -> list[str]:
    """The names and numbers of a rule, in order; a name inside a section is ``"<section>.<name>"``."""
    return rule.rpartition("(")[2].removesuffix(")").split()[0::2]


def calculate(rule: str, values: Sequence[Json]) -> Json:
    """The value of ``rule`` where its operands are ``values``; ``None`` where they give none (no counts, a division by zero).

    Rules are a name alone, names and numbers joined by ``//``, ``*`` and ``+`` from left to right, ``ceil(a / 16)`` and ``len(a)``.
    """
    function, _, inside = rule.removesuffix(")").rpartition("(")
    operators = inside.split()[1::2]
    if function == "len":
        return len(values[0]) if isinstance(values[0], list) else None
    if not operators:
        return values[0]
    counts = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0]
    if len(counts) < len(values) or ("//" in operators and 0 in counts):
        return None
    if function == "ceil":
        return -(-counts[0] // counts[1])
    result = counts[0]
    for operator, count in zip(operators, counts[1:], strict=True):
        result = result // count if operator == "//" else result * count if operator == "*" else result + count
    return result
