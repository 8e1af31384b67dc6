"""Write ``hubaudit/data/config_defaults.json``: what transformers' configuration classes fill in when config.json leaves a key out.

Run it with the pinned transformers installed: ``python -m tools.config_defaults`` (``--check`` compares instead of writing; minutes).

What is recorded is observed, not guessed: see ``tools.config_probe``. A value that the class computes from other keys is told apart from a
constant, and is never written down as one. Each model type is one line of the file:

- ``class``: the class's name. ``aliases``: other keys that mean one of its own. ``own_wins``: those of them that lose to the own key where a
  file has both.
- ``defaults``: constants, by the class's own names. A default that equals ``common_defaults`` is not repeated.
- ``derived``: attributes that the class computes. ``rule`` is the expression by which it does; without one, ``from`` are the keys that were
  seen to move the attribute, and ``otherwise`` what it is while all of those keep their defaults.
- ``nulls``: keys whose explicit null the class replaces, by which rule, or by ``null`` where it has no short form.
- ``placeholders``: strings that stand for "compute it" (``"auto"``). ``rewritten``: keys whose given value the class does not keep as it is;
  ``<section>.<key>`` for one inside a section.
- ``also_reads``: further keys that its code looks for.
- ``sub_configs``: sections and the model type they are always read with; ``auto_sub_configs``: sections that name their model type themselves,
  and the one they have where they do not. A section class without a registered model type is kept as ``<model type>/<section>``.
- ``fills``: what the class puts into a section of its own default type that the file leaves out (``absent``) or that lacks the key
  (``partial``), and that the section's class would not.
- ``pushes``: for a key of a section, the keys outside it with which the class moves it.
- ``text_config``, ``decoder_config``: the section that ``get_text_config()`` and ``get_text_config(decoder=True)`` pick; ``flat``: that section,
  where a file without it is read as if its keys stood in it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import logging
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.config_probe import LEFT_OUT, Observations, Probe, Values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

TRANSFORMERS = "5.23.0"
NULL_BUILDS = 30
OUTPUT = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "config_defaults.json"

# transformers/models/auto/configuration_auto.py, AutoConfig.from_pretrained: a mistral config that carries layer_types is read as ministral.
READ_AS_WHEN_KEY_PRESENT = {"mistral": {"layer_types": "ministral"}}

# Classes that cannot be built from their own defaults, and the least that they need.
START: dict[str, Values] = {
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}},
    "nougat": {"encoder": {"model_type": "donut-swin"}},
}

# transformers/modeling_utils.py, get_expanded_tied_weights_keys: getattr(config, "tie_word_embeddings", False); PreTrainedConfig declares
# is_encoder_decoder = False, and its __post_init__ reads torch_dtype where dtype is not given. They hold for every class that does not say
# otherwise.
COMMON_ALIASES = {"torch_dtype": "dtype"}
COMMON_DEFAULTS = {"is_encoder_decoder": False, "tie_word_embeddings": False}


# --- what is concluded of one class --------------------------------------------------------------------------------------


class Conclusions:
    """What the observations of one class say of its keys."""

    def __init__(self, seen: Observations) -> None:
        self.seen = seen
        self.probe = seen.probe
        self.base: Values = seen.base or {}
        self.untested = seen.untested() if seen.base is not None else []
        self.moved = self._moved()
        self.rewritten = self._rewritten()
        self.computed = self._computed()
        unsteady = self.moved | self.rewritten | set(self.probe.properties)
        self.operands = [name for name in self.base if name not in unsteady and (name in seen.declared or "." in name)]

    def _moved(self) -> set[str]:
        """Attributes whose value moves when another key does."""
        found: set[str] = set()
        for keys, read in self.seen.all():
            found |= {name for name, value in self.base.items() if name not in keys and read.get(name, value) != value}
        return {name for name in found if "." not in name}

    def _rewritten(self) -> set[str]:
        """Keys (of sections, too) whose given value the class does not keep as it is, be it the declared default itself."""
        replaced = {
            name
            for name, value in self.seen.declared.items()
            if value is not None and self.base.get(name, value) != value
        }
        return replaced | {
            name
            for keys, read in self.seen.singles
            for name, value in keys.items()
            if name in read and read[name] != value
        }

    def _computed(self) -> set[str]:
        """What is no constant, or cannot be shown to be one: moved, a property, unreadable, or set by code that was not understood."""
        unreadable = set(self.seen.declared) - set(self.base)
        doubtful = {name for name in self.base if "." not in name and self.doubts(name)}
        return self.moved | set(self.probe.properties) | unreadable | doubtful

    def doubts(self, name: str) -> set[str]:
        """The untested keys that the code of the class may set the attribute from."""
        if not self.untested:
            return set()
        if self.probe.source.sets_by_name:
            return set(self.untested) - {name}
        sources = self.probe.source.sources(name)
        return (sources & set(self.untested)) - {name}

    def movers(self, name: str) -> list[str]:
        """The keys that can move the attribute ``name``: those that did, and those of which nothing is known."""
        value = self.base.get(name)
        found = {key for keys, read in self.seen.singles for key in keys if key != name and read.get(name) != value}
        for keys, read in self.seen.joint:
            if name not in keys and read.get(name) != value and not found & keys.keys():
                found |= keys.keys()
        found |= self.doubts(name)
        return sorted(found)

    def derivation(self, name: str) -> Values:
        """The ``rule`` for an attribute, or else where it comes ``from`` and what it is ``otherwise``."""
        rule = rule_for(name, self.base, [read for keys, read in self.seen.all() if name not in keys], self.operands)
        if rule is not None:
            return {"rule": rule}
        result: Values = {"from": self.movers(name)}
        # A list that moves with the number of layers is of no use for another number of layers.
        useless = name in self.moved and isinstance(self.base.get(name), list | dict)
        if result["from"] and name in self.base and not useless:
            result["otherwise"] = self.base[name]
        return result

    def pushes(self) -> dict[str, list[str]]:
        """For each key of a section that moves when the class's own keys or another section's do: those keys."""
        found: dict[str, set[str]] = {}
        for keys, read in self.seen.singles:
            for name in (name for name, value in self.base.items() if "." in name and read.get(name, value) != value):
                outer = {key for key in keys if key.partition(".")[0] != name.partition(".")[0]}
                if outer:
                    found.setdefault(name, set()).update(outer)
        return {name: sorted(keys) for name, keys in found.items()}

    def null_rules(self) -> dict[str, str | None]:
        """For each key whose explicit null the class replaces: the rule by which it does, or ``None`` where it has no short form."""
        rules: dict[str, str | None] = {}
        for name in self.seen.declared:
            base = self.probe.observe({name: None})
            if base is None or base.get(name) is None:
                continue
            allowed = set(self.operands) - {name}
            changes = [keys for keys, _ in [*self.seen.joint, *self.seen.singles] if keys.keys() <= allowed]
            seen = [self.probe.observe({**keys, name: None}) for keys in changes[:NULL_BUILDS]]
            builds = [read for read in seen if read is not None and name in read]
            rules[name] = rule_for(name, base, builds, self.operands)
        return rules

    def own_wins(self, aliases: Mapping[str, str]) -> list[str]:
        """The aliases that lose to the class's own key where both are given."""
        losing = []
        for alias, own in aliases.items():
            value = self.base.get(own)
            if type(value) is not int or alias == own:
                continue
            seen = self.probe.observe({alias: value * 4 + 4, own: value * 2 + 2})
            if seen is not None and seen.get(own) == value * 2 + 2:
                losing.append(alias)
        return sorted(losing)

    def row(self) -> Values:
        """What the table says of the class and its own keys."""
        spelled = {**self.probe.aliases, **self.seen.spellings}
        aliases = {alias: own for alias, own in spelled.items() if not LEFT_OUT.search(own)}
        result: Values = {
            "class": self.probe.config_class.__name__,
            "aliases": aliases,
            "own_wins": self.own_wins(aliases),
        }
        constants = {name: value for name, value in self.base.items() if name not in self.computed and "." not in name}
        known = {*self.base, *aliases, *self.probe.fields}
        literal = {name: value for name, value in self.probe.source.keyword_defaults.items() if name not in known}
        result["defaults"] = {
            name: value
            for name, value in {**literal, **constants}.items()
            if not LEFT_OUT.search(name) and (name not in COMMON_DEFAULTS or COMMON_DEFAULTS[name] != value)
        }
        result["derived"] = {name: self.derivation(name) for name in sorted(self.computed)}
        result["pushes"] = self.pushes()
        result["nulls"] = self.null_rules() if self.base else {}
        result["placeholders"] = {
            name: value
            for name, value in self.seen.declared.items()
            if isinstance(value, str) and name in self.computed and self.base.get(name, value) != value
        }
        result["rewritten"] = sorted(self.rewritten)
        extra = self.probe.source.keywords - known - result["defaults"].keys()
        result["also_reads"] = sorted(name for name in extra if not LEFT_OUT.search(name))
        return result


# --- rules -----------------------------------------------------------------------------------------------------------------


def rule_for(name: str, base: Values, builds: list[Values], operands: list[str]) -> str | None:
    """The one expression over ``operands`` that gives ``name`` in every build, or ``None``.

    The value must have changed along with each operand in some build. Of several expressions that hold, the simplest form wins; two of the same form leave the
    question open.
    """
    reads = [base, *builds]
    if not all(isinstance(read.get(name), int | float) for read in reads):
        return None
    moving = [read for read in builds if read[name] != base[name]]
    tested = [a for a in operands if a != name and any(read.get(a) != base.get(a) for read in moving)]
    for form in _forms(name, reads, tested):
        holding = [rule for rule in form if all(_holds(rule, name, read) for read in reads)]
        if holding:
            return holding[0] if len(holding) == 1 else None
    return None


def _forms(name: str, reads: list[Values], tested: list[str]) -> Iterator[Iterable[str]]:
    """Candidate rules, simplest first: ``a`` · ``k * a`` · ``a // b`` · ``a * b`` · ``a + b`` · ``a * b // c`` · ``ceil(a / 16)`` · ``len(a)``."""
    yield tested
    if not all(type(read[name]) is int for read in reads):
        return
    base = reads[0]
    whole = [a for a in tested if all(type(read.get(a)) is int and read[a] > 0 for read in reads)]
    yield [f"{base[name] // base[a]} * {a}" for a in whole if base[name] % base[a] == 0 and base[name] > base[a]]
    yield [f"{a} // {b}" for a, b in itertools.permutations(whole, 2)]
    yield [f"{a} * {b}" for a, b in itertools.combinations(whole, 2)]
    yield [f"{a} + {b}" for a, b in itertools.combinations(whole, 2)]
    products = [*itertools.combinations(whole, 2), *(("2", a) for a in whole)]
    yield [f"{a} * {b} // {c}" for (a, b), c in itertools.product(products, whole) if c not in (a, b)]
    yield [f"ceil({a} / 16)" for a in whole]
    yield [f"len({a})" for a in tested if all(isinstance(read.get(a), list) for read in reads)]


def _holds(rule: str, name: str, read: Values) -> bool:
    value = evaluate(rule, read)
    return type(value) is type(read[name]) and value == read[name]


def evaluate(rule: str, read: Mapping[str, Any]) -> Any:
    """The value of a rule over the attributes of one build."""
    words = rule.replace("(", " ").replace(")", "").split()
    if words[0] == "ceil":
        return -(-read[words[1]] // 16)
    if words[0] == "len":
        return len(read[words[1]])
    value = read.get(words[0]) if len(words) == 1 or not words[0].isdecimal() else int(words[0])
    for operator, word in zip(words[1::2], words[2::2], strict=True):
        value = {"//": value // read[word], "*": value * read[word], "+": value + read[word]}[operator]
    return value


# --- the whole library ---------------------------------------------------------------------------------------------------


class Library:
    """The configuration classes of the installed transformers, and the names under which the table keeps them."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        transformers = importlib.import_module("transformers")
        auto = importlib.import_module("transformers.models.auto.configuration_auto")
        self.version: str = transformers.__version__
        self.base: Any = transformers.PreTrainedConfig
        self.classes: dict[str, Any] = {name: auto.CONFIG_MAPPING[name] for name in sorted(auto.CONFIG_MAPPING_NAMES)}
        self.names = {
            config_class: name for name, config_class in self.classes.items() if config_class.model_type == name
        }
        for name, config_class in list(self.classes.items()):
            self._adopt(name, config_class)

    def _adopt(self, owner: str, config_class: Any) -> None:
        """Give a name to section classes that are not registered: ``<owner>/<section>``."""
        for section, spec in config_class.sub_configs_defaults.items():
            if self._is_fixed(spec) and spec.config_class not in self.names:
                name = f"{owner}/{section}"
                self.names[spec.config_class] = name
                self.classes[name] = spec.config_class
                self._adopt(name, spec.config_class)

    def _is_fixed(self, spec: Any) -> bool:
        return isinstance(spec.config_class, type) and issubclass(spec.config_class, self.base)

    def row(self, name: str) -> Values:
        """The line of one model type."""
        config_class = self.classes[name]
        probe = Probe(config_class, self.base, START.get(name))
        specs = config_class.sub_configs_defaults
        values = Conclusions(Observations(probe, name)).row()
        values["sub_configs"] = {
            key: self.names[spec.config_class] for key, spec in specs.items() if self._is_fixed(spec)
        }
        values["auto_sub_configs"] = {
            key: spec.model_type for key, spec in specs.items() if not self._is_fixed(spec) and spec.model_type
        }
        values["fills"] = {key: found for key in specs if (found := self._fills(probe, key))}
        values["read_as"] = READ_AS_WHEN_KEY_PRESENT.get(name)
        values |= self._language(probe)
        return {key: value for key, value in values.items() if key == "defaults" or value not in ({}, [], None)}

    def _fills(self, probe: Probe, section: str) -> Values:
        found = {"absent": {}, "partial": {section: {"key_that_nobody_reads": 0}}}
        found = {when: self._fill(getattr(probe.build(keys), section, None)) for when, keys in found.items()}
        return {when: fill for when, fill in found.items() if fill}

    def _fill(self, child: Any) -> Values:
        """The fewest keys with which the section's class by itself becomes ``child``."""
        if type(child) not in self.names:
            return {}
        probe = Probe(type(child), self.base)
        wanted, own = probe.read(child), probe.observe({})
        if own is None or wanted == own:
            return {}
        fill = {name: value for name, value in wanted.items() if "." not in name and name not in probe.properties}
        if not self._same(wanted, probe.observe(fill)):
            # A backbone names its stages in ways that shut each other out; then what differs is all that can be said.
            return {name: value for name, value in fill.items() if own.get(name, NotImplemented) != value}
        for name in list(fill):
            fewer = {other: value for other, value in fill.items() if other != name}
            if self._same(wanted, probe.observe(fewer)):
                fill = fewer
        return fill

    def _same(self, wanted: Values, got: Values | None) -> bool:
        known = None if got is None else {**COMMON_DEFAULTS, **got}
        return known is not None and {**wanted, **known} == {**known, **wanted}

    def _language(self, probe: Probe) -> Values:
        config = probe.build({})
        if config is None:
            return {}
        picks = {"text_config": self._pick(config, decoder=None), "decoder_config": self._pick(config, decoder=True)}
        section = picks["decoder_config"]
        if section is not None and "." not in section and self._is_flat(probe, section, getattr(config, section)):
            picks["flat"] = section
        return picks

    def _pick(self, config: Any, *, decoder: bool | None) -> str | None:
        try:
            chosen = config.get_text_config(decoder=decoder)
        except Exception:  # noqa: BLE001 -- "ambiguous" is said by an exception; then there is no one section
            return None
        return next((path for path, section in self._tree(config, "") if section is chosen), None)

    def _tree(self, config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for section in config.sub_configs_defaults:
            child = getattr(config, section, None)
            if isinstance(child, self.base):
                yield f"{prefix}{section}", child
                yield from self._tree(child, f"{prefix}{section}.")

    def _is_flat(self, probe: Probe, section: str, child: Any) -> bool:
        keys = [
            key
            for key in ("num_hidden_layers", "hidden_size", "vocab_size")
            if key in vars(child) and key not in probe.fields
        ]
        built = [(key, probe.build({key: 2 * getattr(child, key)})) for key in keys]
        return bool(built) and all(
            c is not None and getattr(getattr(c, section), key) == 2 * getattr(child, key) for key, c in built
        )


@functools.cache
def library() -> Library:
    """The installed library, once per process; ``RuntimeError`` where it is not the pinned version."""
    found = Library()
    if found.version != TRANSFORMERS:
        raise RuntimeError(f"the table is made from transformers {TRANSFORMERS}, and {found.version} is installed")
    return found


def row(name: str) -> Values:
    """The line of one model type, in whichever process it is asked for."""
    return library().row(name)


def generate(processes: int | None = None) -> str:
    """The text of the file for the installed transformers."""
    names = sorted(library().classes)
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        rows = dict(zip(names, pool.map(row, names, chunksize=8), strict=True))
    return render(
        {
            "source": f"transformers {TRANSFORMERS} configuration classes",
            "transformers_version": TRANSFORMERS,
            "common_aliases": COMMON_ALIASES,
            "common_defaults": COMMON_DEFAULTS,
            "model_types": rows,
        }
    )


def render(table: Values) -> str:
    """The table as it lies in the file: sorted, one model type a line."""
    head = {name: value for name, value in table.items() if name != "model_types"}
    lines = [f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in sorted(head.items())]
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
        for name, value in sorted(table["model_types"].items())
    )
    return "{\n" + ",\n".join(lines) + ',\n"model_types": {\n' + rows + "\n}\n}\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or with ``--check`` say whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    options = parser.parse_args(arguments)
    text = generate()
    if options.check:
        fresh = OUTPUT.read_text(encoding="utf-8") == text
        print(f"{OUTPUT.name} is {'fresh' if fresh else 'stale'}")
        return 0 if fresh else 1
    OUTPUT.write_text(text, encoding="utf-8")
    print(f"{OUTPUT.name}: {len(text)} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
