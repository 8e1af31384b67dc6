"""Build one configuration class of transformers over and over, with one key or several changed, and read its attributes back."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import json
import math
import random
import re
import textwrap
import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Values: TypeAlias = dict[str, Any]

LONGEST_LIST = 128
JOINT_BUILDS = 24

# Keys that say nothing about a shape, a width, a count or a layer's kind.
LEFT_OUT = re.compile(
    r"""^_
    | (^|_)(token|bos|eos|pad|sep|cls|mask|unk|image|video|audio|codec\w*|\w+token)_(ids?|index|indices)$ | _token_id_list$
    | ^initializer_ | _initializer(_range)?$ | _init_(std|range|scale|factor|value|gain|max|min)$ | _std$ | (^|_)eps(ilon)?$
    | (^|_)loss(_|$) | (aux|eos|bbox|giou|dice|distance)\w*_coef(f|ficient)?$ | ^mask_(time|feature)_(prob|length|min_masks)$
    | ^(id2label|label2id|num_labels|problem_type)$ | ^summary_ | ^output_(attentions|hidden_states|router_logits)$
    | ^(transformers_version|architectures|return_dict|chunk_size_feed_forward|dtype|use_cache|use_return_dict)$
    | ^(torch_dtype|name_or_path|rope_(scaling|parameters|theta)|is_heterogeneous|per_layer_\w*attributes|pruned_heads)$
    | ^(begin_)?suppress_tokens$ | ^(base_model_\w+_plan|keys_to_ignore_at_inference|ignore_keys_at_rope_validation)$
    | ^(default_theta|default_rope_type)$""",
    re.VERBOSE,
)

# Keys of a section that a wrapping class may look into; they are read back under "<section>.<key>".
SECTION_KEYS = (
    "hidden_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "tie_word_embeddings",
    "vocab_size",
)


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


# --- one build -----------------------------------------------------------------------------------------------------------


class Probe:
    """One configuration class: builds it from given keys and reads its attributes back.

    ``start`` are keys without which the class cannot be built at all.
    """

    def __init__(self, config_class: Any, base_class: Any, start: Values | None = None) -> None:
        self.config_class = config_class
        self.base_class = base_class
        self.start = start or {}
        self.aliases: dict[str, str] = {name: own for name, own in config_class.attribute_map.items() if name != own}
        self.fields = {field.name: field for field in dataclasses.fields(config_class)}
        inherited = set(dir(base_class)) | {field.name for field in dataclasses.fields(base_class)}
        members = inspect.getmembers(config_class, lambda member: isinstance(member, property))
        self.properties = sorted(name for name, _ in members if name not in inherited and not LEFT_OUT.search(name))
        self.class_values = sorted(self._class_values())
        self.sections = sorted(config_class.sub_configs_defaults)
        self.source = SourceReading(config_class, base_class)

    def _class_values(self) -> Iterator[str]:
        """Numbers and flags that the class holds without declaring them as keys."""
        for ancestor in self.config_class.__mro__:
            if ancestor is not self.base_class and issubclass(ancestor, self.base_class):
                yield from (name for name, value in vars(ancestor).items() if isinstance(value, bool | int | float))

    def own(self, name: str) -> str:
        """The name under which the class itself keeps ``name``."""
        return self.aliases.get(name, name)

    def declared(self) -> Values:
        """The defaults as the class writes them down, before any code of it runs."""
        found: Values = {}
        for name, field in self.fields.items():
            factory: Any = field.default_factory
            value = plain(field.default if factory is dataclasses.MISSING else factory())
            if value is not NotImplemented and not LEFT_OUT.search(name) and name not in self.sections:
                found[self.own(name)] = value
        return found

    def annotation(self, own: str) -> Any:
        """The declared type of a field, given by the class's own name for it."""
        return next((field.type for name, field in self.fields.items() if self.own(name) == own), None)

    def build(self, keys: Values) -> Any | None:
        """The class built from ``keys``; ``None`` where it refuses them."""
        try:
            with warnings.catch_warnings(action="ignore"):
                return self.config_class(**json.loads(json.dumps({**self.start, **keys})))
        except Exception:  # noqa: BLE001 -- any class may refuse any change, in its own way; a refusal is the answer
            return None

    def observe(self, keys: Values) -> Values | None:
        """Every recorded attribute of the class built from ``keys``, or ``None`` where it refuses them.

        A key ``"<section>.<key>"`` stands for that key inside that section.
        """
        nested: Values = {}
        for name, value in keys.items():
            section, dot, inner = name.partition(".")
            if dot:
                nested.setdefault(section, {})[inner] = value
            else:
                nested[name] = value
        config = self.build(nested)
        return None if config is None else self.read(config)

    def read(self, config: Any) -> Values:
        """The attributes of a built config as plain values; what has no plain form is left out."""
        names = (
            {*self.fields, *vars(config), *self.properties, *self.class_values} - set(self.aliases) - set(self.sections)
        )
        found = {name: attribute(config, name) for name in sorted(names) if not LEFT_OUT.search(name)}
        for section in self.sections:
            child = getattr(config, section, None)
            if isinstance(child, self.base_class):
                found |= {f"{section}.{key}": attribute(child, key) for key in SECTION_KEYS}
        rope = attribute(config, "rope_parameters")
        if isinstance(rope, dict) and isinstance(rope.get("partial_rotary_factor"), int | float):
            found.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
        return {name: value for name, value in found.items() if value is not NotImplemented}


class SourceReading:
    """What the source of a class says: keys that it looks for without declaring them, and which names each attribute is set from.

    ``keywords`` are the names in ``kwargs.pop("name")`` and its like, ``keyword_defaults`` the literals beside them, ``compared_strings`` the
    strings that the code compares something with.
    """

    def __init__(self, config_class: Any, base_class: Any) -> None:
        self._aliases: dict[str, str] = config_class.attribute_map
        self.keywords: set[str] = set()
        self.keyword_defaults: Values = {}
        self.compared_strings: set[str] = set()
        self.sets_by_name = False  # setattr(self, name, ...): what it sets cannot be told from the text
        self._direct: dict[str, set[str]] = {}
        for ancestor in config_class.__mro__:
            if ancestor is not base_class and issubclass(ancestor, base_class):
                tree = ast.parse(textwrap.dedent(inspect.getsource(ancestor)))
                for node in ast.walk(tree):
                    self._note(node)
                    if isinstance(node, ast.FunctionDef):
                        self._follow(node)

    def sources(self, name: str) -> set[str]:
        """Every attribute, method and key that the value of the attribute ``name`` may come from, however far back."""
        found: set[str] = set()
        waiting = {name}
        while waiting:
            more = {source for known in waiting for source in self._direct.get(known, ())}
            waiting = more - found
            found |= more
        return found

    def _note(self, node: ast.AST) -> None:
        self.keywords |= set(_keywords(node))
        if isinstance(node, ast.Compare):
            self.compared_strings |= {text for part in ast.walk(node) for text in _texts(part)}
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            self.sets_by_name = True
        if isinstance(node, ast.Call) and len(node.args) > 1:
            for name in _keywords(node):
                with contextlib.suppress(ValueError):
                    default = plain(ast.literal_eval(node.args[1]))
                    if default is not NotImplemented and default is not None:
                        self.keyword_defaults.setdefault(name, default)

    def _follow(self, function: ast.FunctionDef) -> None:
        """Note what each statement of a method sets, and from what: attributes, keys, and local names with all that went into them."""
        local: dict[str, set[str]] = {}
        for statement in function.body:
            read: set[str] = set()
            for node in ast.walk(statement):
                read |= set(_keywords(node)) | set(self._attributes(node, ast.Load))
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    read |= local.get(node.id, set())
            for node in ast.walk(statement):
                for name in self._attributes(node, ast.Store):
                    self._direct.setdefault(name, set()).update(read)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    local.setdefault(node.id, set()).update(read)
            self._direct.setdefault(function.name, set()).update(read)

    def _attributes(self, node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
        """``name`` in ``self.name``, where it is read (``ast.Load``) or set (``ast.Store``), as the class keeps it."""
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, context) and ast.unparse(node.value) == "self":
            yield self._aliases.get(node.attr, node.attr)


def _keywords(node: ast.AST) -> Iterator[str]:
    """The name in ``kwargs.pop("name", ...)``, ``.get``, ``.setdefault``, ``kwargs["name"]`` and ``"name" in kwargs``."""
    if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "kwargs":
        yield from _texts(node.left)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "kwargs":
        yield from _texts(node.slice)
    if (
        isinstance(node, ast.Call)
        and node.args
        and ast.unparse(node.func) in ("kwargs.pop", "kwargs.get", "kwargs.setdefault")
    ):
        yield from _texts(node.args[0])


def _texts(node: ast.AST) -> Iterator[str]:
    """The string that the node is, if it is one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


# --- many builds -----------------------------------------------------------------------------------------------------------


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
    if isinstance(value, list) and value:
        numbers = all(type(item) is int for item in value)
        return [value[:-1], value + value[-1:], *([[item * 2 for item in value]] if numbers else [])]
    if value is None:
        integers: list[Any] = [8, 12, 1] if "int" in annotation else []
        return integers + ([0.25] if "float" in annotation else []) + ([True, False] if "bool" in annotation else [])
    return []


def literals(annotation: Any) -> Iterator[str]:
    """Every string that a ``Literal`` inside the annotation names."""
    if get_origin(annotation) is Literal:
        yield from (option for option in get_args(annotation) if isinstance(option, str))
    for part in get_args(annotation):
        yield from literals(part)


class Observations:
    """The accepted builds of one class, each as ``(keys changed, attributes read back)``, and the names that stand for others.

    ``base`` is the build without any key, ``None`` where the class refuses even that; then there are no others.
    """

    def __init__(self, probe: Probe, seed: str) -> None:
        self.probe = probe
        self.declared = probe.declared()
        self.random = random.Random(seed)  # noqa: S311 -- reproducible variety, not secrecy
        self.base = probe.observe({})
        self.spellings: dict[str, str] = {}
        self.singles: list[tuple[Values, Values]] = []
        self.joint: list[tuple[Values, Values]] = []
        if self.base is not None:
            self.spellings = {**self._value_spellings(self.base), **self._section_spellings()}
            self.singles = list(self._singles(self.base))
            self.joint = list(self._joint())

    def all(self) -> Iterator[tuple[Values, Values]]:
        """Every accepted build but the one with defaults."""
        yield from self.singles
        yield from self.joint

    def untested(self) -> list[str]:
        """Keys that can take another value, as far as their types tell, and that the class never took another value for."""
        changed = {key for keys, _ in self.all() for key in keys}
        scalars = [name for name, value in self.declared.items() if isinstance(value, bool | int)]
        return sorted(name for name in [*scalars, *self.silent_keywords()] if name not in changed)

    def silent_keywords(self) -> list[str]:
        """Keys that the code looks for, that are not declared, and whose change never moved anything: their use is not understood."""
        moving = {key for keys, read in self.singles for key in keys if len(keys) == 1 and self._moves(key, read)}
        return sorted(name for name in self._extra_keys() if name not in moving and name not in self.spellings)

    def _moves(self, key: str, read: Values) -> bool:
        assert self.base is not None
        return any(read.get(name) != value for name, value in self.base.items() if name != key)

    def _extra_keys(self) -> list[str]:
        known = {*self.probe.fields, *self.probe.aliases, *self.probe.sections}
        return sorted(name for name in self.probe.source.keywords - known if not LEFT_OUT.search(name))

    def _singles(self, base: Values) -> Iterator[tuple[Values, Values]]:
        for name, value in self._single_changes(base):
            seen = self.probe.observe({name: value})
            if seen is not None:
                yield {self.spellings.get(name, name): value}, seen

    def _single_changes(self, base: Values) -> Iterator[tuple[str, Any]]:
        """Declared keys, keys that only the code mentions, and attributes that only the code sets (or that belong to a section)."""
        for name, value in self.declared.items():
            annotation = self.probe.annotation(name)
            strings = sorted({*literals(annotation), *self.probe.source.compared_strings})
            others = other_values(value, str(annotation), strings)
            if value is None:
                others += other_values(base.get(name), "", strings)
            yield from ((name, other) for other in others)
        for name in self._extra_keys():
            yield from ((name, value) for value in (8, 12, True, False))
        for name in sorted(base.keys() - self.declared.keys()):
            yield from ((name, other) for other in other_values(base[name], "", ()))

    def _joint(self) -> Iterator[tuple[Values, Values]]:
        counts = {name: value for name, value in self.declared.items() if type(value) is int and value > 0}
        attempts = [
            self.random.sample(sorted(counts), min(len(counts), 2 + n % 5))
            for n in range(JOINT_BUILDS if counts else 0)
        ]
        changed = {key for keys, _ in self.singles for key in keys}
        shy = [name for name in counts if name not in changed]
        # A key that is refused alone is often accepted along with another: a head count with the width that it divides.
        attempts += [[name, other] for name in shy for other in sorted(counts) if other != name and len(shy) < 4]
        flags = [name for name, value in self.declared.items() if isinstance(value, bool)]
        for number, chosen in enumerate(attempts):
            keys: Values = {name: counts[name] * self.random.choice((2, 3, 4, 5, 24)) for name in chosen}
            if flags and number % 3 == 0:
                flag = self.random.choice(flags)
                keys[flag] = not self.declared[flag]
            seen = self.probe.observe(keys)
            if seen is not None:
                yield keys, seen

    def _value_spellings(self, base: Values) -> dict[str, str]:
        """Keys that the class does not declare but takes as another spelling of one that it has: ``n_embed`` for ``hidden_size``."""
        found: dict[str, str] = {}
        for name in self._extra_keys():
            for values in ((40, 56), (48, 96), (2, 4), (True, False)):
                targets = self._followers(base, name, values)
                declared = [target for target in targets if target in self.declared]
                if len(declared) == 1 or len(targets) == 1:
                    found[name] = (declared if len(declared) == 1 else targets)[0]
                    break
        return found

    def _followers(self, base: Values, name: str, values: tuple[Any, ...]) -> list[str]:
        """The attributes that are what ``name`` is given, for each of ``values``."""
        agreeing = set(base) - {name}
        for value in values:
            seen = self.probe.observe({name: value})
            if seen is None:
                return []
            agreeing &= {read for read, other in seen.items() if type(other) is type(value) and other == value}
        return sorted(agreeing)

    def _section_spellings(self) -> dict[str, str]:
        """Keys whose object the class takes for one of its sections: ``language_config`` for ``text_config``."""
        found: dict[str, str] = {}
        for name in self._extra_keys():
            for section in self.probe.sections:
                for key in ("hidden_size", "num_hidden_layers", "embed_dim"):
                    seen = [self.probe.build({name: {key: value}}) for value in (48, 96)]
                    read = [attribute(getattr(config, section, None), key) for config in seen]
                    if read == [48, 96]:
                        found[name] = section
        return found
