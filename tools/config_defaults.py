"""Write ``hubaudit/data/config_defaults.json``: what transformers' configuration classes fill in when config.json leaves a key out.

Run it with the pinned transformers installed: ``python tools/config_defaults.py`` (``--check`` compares instead of writing).

What is recorded is observed, not guessed. Every class is built with its defaults, then again with each of its keys changed, with
several changed together, and with each key set to null; the attributes are read back after each build. So a value that the class
computes from other keys is told apart from a constant, and is never written down as one.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib
import inspect
import itertools
import json
import logging
import math
import random
import re
import sys
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Values: TypeAlias = dict[str, Any]

TRANSFORMERS = "5.23.0"
OUTPUT = Path(__file__).resolve().parent.parent / "hubaudit" / "data" / "config_defaults.json"
LONGEST_LIST = 128

# Keys that say nothing about a shape, a width, a count, a dtype or a layer's kind.
LEFT_OUT = re.compile(
    r"""^_ | (^|_)(token|bos|eos|pad|sep|cls|mask|unk|image|video|audio|codec\w*|\w+token)_(ids?|index|indices)$ | _token_id_list$
    | ^initializer_ | _init(ializer)?(_std|_range|_scale|_factor|_value|_gain|_max|_min)?$ | _std$ | (^|_)eps(ilon)?$
    | (^|_)loss(_|$) | _loss$ | _coef(f|ficient)?$ | ^mask_(time|feature)_ | ^(id2label|label2id|num_labels|problem_type)$ | ^summary_
    | ^(transformers_version|architectures|return_dict|output_\w+|chunk_size_feed_forward|dtype|use_cache|use_return_dict)$
    | ^(torch_dtype|name_or_path|rope_(scaling|parameters|theta)|is_heterogeneous|per_layer_\w*attributes|pruned_heads|begin_suppress_tokens|suppress_tokens)$
    | ^(base_model_\w+_plan|keys_to_ignore_at_inference|ignore_keys_at_rope_validation|default_theta|default_rope_type)$""",
    re.VERBOSE,
)

# Keys of a section that a wrapping class is known to look into; they are read back under "<section>.<key>".
SECTION_KEYS = (
    "hidden_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "tie_word_embeddings",
    "vocab_size",
)

# transformers/models/auto/configuration_auto.py, AutoConfig.from_pretrained: a mistral config that carries layer_types is read as ministral.
READ_AS_WHEN_KEY_PRESENT = {"mistral": {"layer_types": "ministral"}}

# transformers/modeling_utils.py, get_expanded_tied_weights_keys: getattr(config, "tie_word_embeddings", False); PreTrainedConfig declares
# is_encoder_decoder = False. Both hold for every class that does not say otherwise.
COMMON_ALIASES = {"torch_dtype": "dtype"}  # PreTrainedConfig.__post_init__, where dtype wins over torch_dtype
COMMON_DEFAULTS = {"is_encoder_decoder": False, "tie_word_embeddings": False}


def plain(value: Any) -> Any:
    """``value`` as JSON would hold it, or ``NotImplemented`` where it has no short JSON form."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else NotImplemented
    if isinstance(value, list | tuple) and len(value) <= LONGEST_LIST:
        items = [plain(item) for item in value]
        return NotImplemented if any(item is NotImplemented for item in items) else items
    if isinstance(value, dict) and len(value) <= LONGEST_LIST:
        pairs = {str(key): plain(item) for key, item in value.items()}
        return NotImplemented if any(item is NotImplemented for item in pairs.values()) else pairs
    return NotImplemented


def attribute(config: Any, name: str) -> Any:
    """The plain value of one attribute; ``NotImplemented`` where the config has none, or none that holds for every layer."""
    try:
        return plain(getattr(config, name))
    except Exception:  # noqa: BLE001 -- a property that fails for these keys has no value for them
        return NotImplemented


# --- one class, built and observed ----------------------------------------------------------------------------------------


class Probe:
    """One configuration class: builds it with given keys and reads back what its attributes then are."""

    def __init__(self, config_class: Any, base_class: Any) -> None:
        self.config_class = config_class
        self.base_class = base_class
        self.aliases: dict[str, str] = dict(config_class.attribute_map)
        self.fields = {field.name: field for field in dataclasses.fields(config_class)}
        self.inherited = set(dir(base_class)) | {field.name for field in dataclasses.fields(base_class)}
        self.properties = sorted(self._own_properties())
        self.keywords = KeywordUse.of(config_class, base_class)

    def _own_properties(self) -> Iterator[str]:
        for name, member in inspect.getmembers(self.config_class):
            if isinstance(member, property) and not LEFT_OUT.search(name) and name not in self.inherited:
                yield name

    def build(self, keys: Values) -> Any | None:
        """The class built from ``keys``; ``None`` where it refuses them."""
        try:
            return self.config_class(**json.loads(json.dumps(keys)))
        except Exception:  # noqa: BLE001 -- any class may refuse any perturbation, in its own way; a refusal is the answer
            return None

    def read(self, config: Any) -> Values:
        """Every recorded attribute of a built config, as plain values; what has no plain form is left out."""
        names = {*self.fields, *vars(config), *self.properties} - set(self.aliases)
        found: Values = {}
        for name in sorted(names):
            if LEFT_OUT.search(name):
                continue
            value = attribute(config, name)
            if value is not NotImplemented:
                found[name] = value
        found |= self._read_sections(config)
        rope = attribute(config, "rope_parameters")
        if isinstance(rope, dict) and isinstance(rope.get("partial_rotary_factor"), int | float):
            found.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
        return found

    def _read_sections(self, config: Any) -> Values:
        found: Values = {}
        for section in self.config_class.sub_configs_defaults:
            child = getattr(config, section, None)
            for key in SECTION_KEYS:
                value = attribute(child, key) if isinstance(child, self.base_class) else NotImplemented
                if value is not NotImplemented:
                    found[f"{section}.{key}"] = value
        return found

    def observe(self, keys: Values) -> Values | None:
        """``read`` of ``build``; a key ``"<section>.<key>"`` stands for that key inside that section."""
        nested: Values = {}
        for name, value in keys.items():
            section, dot, inner = name.partition(".")
            if dot:
                nested.setdefault(section, {})[inner] = value
            else:
                nested[name] = value
        config = self.build(nested)
        return None if config is None else self.read(config)

    def declared(self) -> Values:
        """The defaults as the class writes them down, before any code of it runs."""
        found: Values = {}
        for name, field in self.fields.items():
            factory: Any = field.default_factory
            value = plain(field.default if factory is dataclasses.MISSING else factory())
            if value is not NotImplemented and not LEFT_OUT.search(name):
                found[self.own(name)] = value
        return found

    def own(self, name: str) -> str:
        """The name under which the class itself keeps ``name``."""
        return self.aliases.get(name, name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeywordUse:
    """What the code of a class does with keys that it does not declare: the ones it looks for, their literal defaults, and its constants."""

    names: frozenset[str]
    defaults: Values
    compared_strings: frozenset[str]

    @classmethod
    def of(cls, config_class: Any, base_class: Any) -> KeywordUse:
        """Read from the source of the class and of its ancestors up to the common base."""
        names: set[str] = set()
        defaults: Values = {}
        strings: set[str] = set()
        for ancestor in config_class.__mro__:
            if ancestor is base_class or not issubclass(ancestor, base_class):
                continue
            tree = ast.parse(textwrap.dedent(inspect.getsource(ancestor)))
            for node in ast.walk(tree):
                if isinstance(node, ast.Compare):
                    strings |= {text for part in ast.walk(node) for text in _texts(part)}
                    names |= set(_membership(node))
                for name, default in _keyword_reads(node):
                    names.add(name)
                    if default is not NotImplemented and default is not None:
                        defaults.setdefault(name, default)
        return cls(names=frozenset(names), defaults=defaults, compared_strings=frozenset(strings))


def _texts(node: ast.AST) -> Iterator[str]:
    """The string that the node is, if it is one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _membership(node: ast.Compare) -> Iterator[str]:
    """``"name" in kwargs``."""
    right = node.comparators[0]
    if isinstance(right, ast.Name) and right.id == "kwargs":
        yield from _texts(node.left)


def _keyword_reads(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """``kwargs.pop("name", literal)``, ``.get`` and ``.setdefault``: the name and the literal, ``NotImplemented`` where it is none."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return
    if node.func.attr not in ("pop", "get", "setdefault") or ast.unparse(node.func.value) != "kwargs":
        return
    default: Any = NotImplemented
    if len(node.args) > 1:
        with contextlib.suppress(ValueError):
            default = plain(ast.literal_eval(node.args[1]))
    yield from ((name, default) for name in _texts(node.args[0]))


# --- what is changed -----------------------------------------------------------------------------------------------------


def other_values(value: Any, annotation: str, strings: Iterable[str]) -> list[Any]:
    """Values to put in the place of ``value``: near it, far from it, and of every type that the annotation allows."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [1, 7] if value <= 0 else [value * 3, value + 1, max(1, value // 2)]
    if isinstance(value, float):
        return [value / 2, value + 0.5]
    if isinstance(value, str):
        return [text for text in strings if text != value]
    if isinstance(value, list):
        shorter = [value[:-1], value + value[-1:]] if value else []
        return [*shorter, [item * 2 for item in value]] if all(isinstance(item, int) for item in value) else shorter
    if value is None:
        numbers: list[Any] = [8, 12, 1] if "int" in annotation else []
        return numbers + ([0.25] if "float" in annotation else []) + ([True, False] if "bool" in annotation else [])
    return []


def literals(annotation: Any) -> Iterator[str]:
    """Every string that a ``Literal`` inside the annotation names."""
    if get_origin(annotation) is Literal:
        yield from (option for option in get_args(annotation) if isinstance(option, str))
    for part in get_args(annotation):
        yield from literals(part)


class Observations:
    """All builds of one class: ``(keys changed, attributes read back)``."""

    def __init__(self, probe: Probe, seed: str) -> None:
        self.probe = probe
        self.declared = probe.declared()
        self.random = random.Random(seed)  # noqa: S311 -- reproducible variety, not secrecy
        self.base = probe.observe({})
        self.spellings = self._spellings() if self.base is not None else {}
        self.singles = list(self._singles()) if self.base is not None else []
        self.joint = list(self._joint()) if self.base is not None else []

    def all(self) -> Iterator[tuple[Values, Values]]:
        """Every build but the one with defaults."""
        yield from self.singles
        yield from self.joint

    def _alternatives(self, name: str) -> list[Any]:
        field = self.probe.fields.get(name) or next(
            f for n, f in self.probe.fields.items() if self.probe.own(n) == name
        )
        annotation = field.type
        strings = sorted({*literals(annotation), *self.probe.keywords.compared_strings})
        return other_values(self.declared[name], str(annotation), strings)

    def _singles(self) -> Iterator[tuple[Values, Values]]:
        for name, value in self._single_changes():
            seen = self.probe.observe({name: value})
            if seen is not None:
                yield {self.spellings.get(name, name): value}, seen

    def _single_changes(self) -> Iterator[tuple[str, Any]]:
        """Declared keys, keys that only the code mentions, and attributes that only the code sets (or that belong to a section)."""
        assert self.base is not None
        for name in self.declared:
            yield from ((name, value) for value in self._alternatives(name))
        for name in self._extra_keys():
            yield from ((name, value) for value in (8, 12, True, False))
        for name in sorted(self.base.keys() - self.declared.keys() - set(self.probe.properties)):
            yield from ((name, value) for value in other_values(self.base[name], "", ()))

    def _extra_keys(self) -> list[str]:
        return sorted(
            name
            for name in self.probe.keywords.names
            if name not in self.probe.fields and name not in self.probe.aliases
        )

    def _joint(self) -> Iterator[tuple[Values, Values]]:
        counts = {name: value for name, value in self.declared.items() if type(value) is int and value > 0}
        flags = [name for name, value in self.declared.items() if isinstance(value, bool)]
        for attempt in range(24 if counts else 0):
            chosen = self.random.sample(sorted(counts), min(len(counts), 2 + attempt % 5))
            keys: Values = {name: counts[name] * self.random.choice((2, 3, 4, 5, 24)) for name in chosen}
            if flags and attempt % 3 == 0:
                flag = self.random.choice(flags)
                keys[flag] = not self.declared[flag]
            seen = self.probe.observe(keys)
            if seen is not None:
                yield keys, seen

    def _spellings(self) -> dict[str, str]:
        """Keys that the class does not declare but takes as another spelling of one that it has: ``n_embed`` for ``hidden_size``."""
        found: dict[str, str] = {}
        for name in self._extra_keys():
            agreeing: set[str] | None = None
            for value in (40, 56):
                seen = self.probe.observe({name: value}) or {}
                same = {
                    attribute
                    for attribute, read in seen.items()
                    if type(read) is int and read == value and attribute != name
                }
                agreeing = same if agreeing is None else agreeing & same
            targets = sorted(agreeing or ())
            declared_targets = [target for target in targets if target in self.declared]
            if len(declared_targets) == 1 or len(targets) == 1:
                found[name] = (declared_targets if len(declared_targets) == 1 else targets)[0]
        return found


# --- what is concluded ---------------------------------------------------------------------------------------------------


def computed_names(seen: Observations) -> set[str]:
    """Attributes whose value moves when another key does."""
    assert seen.base is not None
    moved = set(seen.probe.properties)
    for keys, read in seen.all():
        moved |= {
            name
            for name, value in seen.base.items()
            if name not in keys and "." not in name and read.get(name, value) != value
        }
    return moved


def movers(seen: Observations, name: str) -> list[str]:
    """The keys that, changed alone, change the attribute ``name``."""
    assert seen.base is not None
    value = seen.base.get(name)
    found = {key for keys, read in seen.singles for key in keys if key != name and read.get(name) != value}
    for keys, read in seen.joint:
        if name not in keys and read.get(name) != value and not found & set(keys):
            found |= set(keys)
    return sorted(found)


def rewritten_names(seen: Observations) -> set[str]:
    """Keys whose given value the class does not keep as it is."""
    return {
        name
        for keys, read in seen.singles
        for name, value in keys.items()
        if "." not in name and name in read and read[name] != value
    }


def rule_for(name: str, base: Values, builds: list[Values], operands: list[str]) -> str | None:
    """The one expression over ``operands`` that gives ``name`` in every build, or ``None``.

    Forms: ``a``, ``k * a``, ``a // b``, ``a * b``, ``a + b``, ``ceil(a / 16)``. Each operand must have changed in some build; two expressions of the
    same form that both hold leave the question open.
    """
    tested = [a for a in operands if a != name and any(read.get(a) != base.get(a) for read in builds)]
    whole = [a for a in tested if all(type(read.get(a)) is int and read[a] > 0 for read in [base, *builds])]
    if not all(isinstance(read.get(name), int | float | str) for read in [base, *builds]):
        return None
    forms: list[Iterable[str]] = [tested]
    if all(type(read[name]) is int for read in [base, *builds]):
        forms.append(
            f"{base[name] // base[a]} * {a}" for a in whole if base[name] % base[a] == 0 and base[name] > base[a]
        )
        forms.append(f"{a} // {b}" for a, b in itertools.permutations(whole, 2))
        forms.append(f"{a} * {b}" for a, b in itertools.combinations(whole, 2))
        forms.append(f"{a} + {b}" for a, b in itertools.combinations(whole, 2))
        forms.append(f"ceil({a} / 16)" for a in whole)
    for form in forms:
        holding = [rule for rule in form if all(evaluate(rule, read) == read[name] for read in [base, *builds])]
        if len(holding) == 1:
            return holding[0]
        if holding:
            return None
    return None


def evaluate(rule: str, values: Mapping[str, Any]) -> Any:
    """The value of a rule over the attributes of one build."""
    if rule.startswith("ceil("):
        return -(-values[rule[5:].split()[0]] // 16)
    parts = rule.split()
    if len(parts) == 1:
        return values.get(rule)
    left = int(parts[0]) if parts[0].isdecimal() else values[parts[0]]
    right = values[parts[2]]
    return {"//": left // right, "*": left * right, "+": left + right}[parts[1]]


def null_rules(seen: Observations, operands: list[str]) -> dict[str, str | None]:
    """For each key whose explicit null the class replaces: the rule by which it does, or ``None`` where it has no short form."""
    rules: dict[str, str | None] = {}
    for name in seen.declared:
        base = seen.probe.observe({name: None})
        if base is None or base.get(name) is None:
            continue
        builds: list[Values] = []
        for keys, _ in seen.all():
            if name not in keys and set(keys) <= set(operands) and len(builds) < 40:
                read = seen.probe.observe({**keys, name: None})
                if read is not None and name in read:
                    builds.append(read)
        rules[name] = rule_for(name, base, builds, operands)
    return rules


def derivation(seen: Observations, name: str, operands: list[str]) -> Values:
    """How the class computes an attribute: the ``rule``, or else the keys it comes ``from`` and what it is while they keep their defaults."""
    assert seen.base is not None
    rule = rule_for(name, seen.base, [read for keys, read in seen.all() if name not in keys], operands)
    if rule is not None:
        return {"rule": rule}
    result: Values = {"from": movers(seen, name)}
    value = seen.base.get(name)
    if result["from"] and name in seen.base and not isinstance(value, list | dict):
        result["otherwise"] = value
    return result


def entry(seen: Observations, sub_configs: Values, language: Values) -> Values:
    """What the table says of one class."""
    probe = seen.probe
    result: Values = {
        "class": probe.config_class.__name__,
        "aliases": {**probe.aliases, **seen.spellings},
        **sub_configs,
        **language,
    }
    result["aliases"] = {alias: own for alias, own in result["aliases"].items() if not LEFT_OUT.search(own)}
    if seen.base is None:
        # The class cannot be built from its own defaults: nothing can be observed, so no default is vouched for.
        result |= {"defaults": {}, "derived": {name: {} for name in sorted(seen.declared)}}
        return result
    computed = computed_names(seen)
    rewritten = rewritten_names(seen)
    constants = {name: value for name, value in seen.base.items() if name not in computed and "." not in name}
    operands = [
        name
        for name in seen.base
        if name not in computed and name not in rewritten and (name in seen.declared or "." in name)
    ]
    keywords = {
        name: value
        for name, value in probe.keywords.defaults.items()
        if name not in seen.base
        and name not in result["aliases"]
        and name not in probe.fields
        and not LEFT_OUT.search(name)
    }
    sections = set(probe.config_class.sub_configs_defaults)
    result["defaults"] = {
        name: value
        for name, value in {**keywords, **constants}.items()
        if name not in sections and COMMON_DEFAULTS.get(name, NotImplemented) != value
    }
    result["derived"] = {name: derivation(seen, name, operands) for name in sorted(computed - sections)}
    result["nulls"] = null_rules(seen, operands)
    result["rewritten"] = sorted(rewritten)
    known = {*result["defaults"], *result["aliases"], *probe.fields}
    result["also_reads"] = sorted(
        name for name in probe.keywords.names if name not in known and not LEFT_OUT.search(name)
    )
    return result


# --- the whole library ---------------------------------------------------------------------------------------------------


class Library:
    """The configuration classes of the installed transformers, and the names under which the table keeps them."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        transformers = importlib.import_module("transformers")
        auto = importlib.import_module("transformers.models.auto.configuration_auto")
        self.version: str = transformers.__version__
        self.base: Any = transformers.PreTrainedConfig
        self.registered: dict[str, Any] = {}
        for model_type in sorted(auto.CONFIG_MAPPING_NAMES):
            self.registered[model_type] = auto.CONFIG_MAPPING[model_type]
        self.names = {
            config_class: name for name, config_class in self.registered.items() if config_class.model_type == name
        }
        self.classes = dict(self.registered)
        for name, config_class in list(self.registered.items()):
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

    def sections(self, config_class: Any) -> Values:
        """``sub_configs``: sections always read with one class. ``auto_sub_configs``: sections that name their model type themselves."""
        fixed: dict[str, str] = {}
        auto: dict[str, str] = {}
        for section, spec in config_class.sub_configs_defaults.items():
            if self._is_fixed(spec):
                fixed[section] = self.names[spec.config_class]
            elif spec.model_type:
                auto[section] = spec.model_type
        return {"sub_configs": fixed, "auto_sub_configs": auto}

    def language(self, probe: Probe) -> Values:
        """Which section ``get_text_config`` picks, with and without ``decoder=True``, and whether old flat files are read into it."""
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

    def table(self) -> Values:
        """The whole table."""
        model_types: Values = {}
        for name, config_class in sorted(self.classes.items()):
            probe = Probe(config_class, self.base)
            model_types[name] = _compact(
                entry(Observations(probe, name), self.sections(config_class), self.language(probe))
            )
        for name, keys in READ_AS_WHEN_KEY_PRESENT.items():
            model_types[name]["read_as"] = keys
        return {
            "source": f"transformers {self.version} configuration classes",
            "transformers_version": self.version,
            "common_aliases": COMMON_ALIASES,
            "common_defaults": COMMON_DEFAULTS,
            "model_types": model_types,
        }


def _compact(values: Values) -> Values:
    """Without what is empty, but with ``defaults`` always there."""
    return {name: value for name, value in values.items() if name == "defaults" or value not in ({}, [], None)}


def render(table: Values) -> str:
    """The table as it lies in the file: sorted, one model type a line."""
    head = {name: value for name, value in table.items() if name != "model_types"}
    lines = [f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in sorted(head.items())]
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
        for name, value in sorted(table["model_types"].items())
    )
    return "{\n" + ",\n".join(lines) + ',\n"model_types": {\n' + rows + "\n}\n}\n"


def generate() -> str:
    """The text of the file for the installed transformers; ``RuntimeError`` where that is not the pinned version."""
    library = Library()
    if library.version != TRANSFORMERS:
        raise RuntimeError(f"the table is made from transformers {TRANSFORMERS}, and {library.version} is installed")
    return render(library.table())


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
