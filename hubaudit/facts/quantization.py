"""Which method quantized the weights, and how wide which modules are, from whichever of a repository's configs says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hubaudit.facts.config_reader import LONGEST_NAME
from hubaudit.facts.module_patterns import matches_target
from hubaudit.facts.packing_layouts import Setting
from hubaudit.facts.quantizers import Method, method_called, methods
from hubaudit.types import NOTHING, Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Config

_MAIN = "config.json"
#: Files that say it where config.json does not: the section that holds the settings, and the method they belong to.
_FILES = (
    ("quantize_config.json", "", "gptq"),
    ("quant_config.json", "", "awq"),
    ("hf_quant_config.json", "quantization", "modelopt"),
)
_SECTIONS = ("quantization_config", "compression_config", "quantization")
#: Other things are called so too; without a method in it, it says nothing.
_AMBIGUOUS = "#quantization"
_BITS = ("bits", "w_bit", "num_bits", "nbits", "weight_bits")
_GROUP = ("group_size", "q_group_size")
_WHOLE_ROW = ("channel", "tensor", "token")
_DEPTH = 3
#: A config that quantizes and does not say how.
UNNAMED = "unnamed"
#: A repository may list as many patterns as it likes; beyond this many they are not tried, and only shapes tell.
_MAX_PATTERNS = 64
#: And as many settings; recipes have two or three.
_MAX_SETTINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One quantization method at work in one repository.

    ``method`` is ``None`` where the table has no such method. ``settings`` are all that the config names, ``by_module`` those of modules named in
    full, ``by_pattern`` those of module patterns.
    """

    name: str
    method: Method | None
    where: str
    bits: int | None = None
    settings: tuple[Setting, ...] = (Setting(),)
    by_module: Mapping[str, Setting] = field(default_factory=dict)
    by_pattern: tuple[tuple[str, Setting], ...] = ()

    def named_for(self, module: str) -> Setting | None:
        """The setting of the first pattern that names the module; ``None`` where none does or an earlier one is not understood."""
        for pattern, setting in self.by_pattern[:_MAX_PATTERNS]:
            matches = matches_target(pattern, module)
            if matches is not False:
                return setting if matches else None
        return None


def scheme_of(configs: Mapping[str, Config]) -> Scheme | None:
    """The scheme that the configs declare, ``None`` where none declares any."""
    for where, section in _sections(configs.get(_MAIN, NOTHING), f"{_MAIN}#", _DEPTH):
        found = _scheme(section, where)
        if found is not None and not (found.name == UNNAMED and where.endswith(_AMBIGUOUS)):
            return found
    for name, key, method in _FILES:
        config = configs.get(name)
        part = config if not key or config is None else config.get(key)
        if isinstance(part, Mapping):
            said = {"quant_method": method, **{word: value for word, value in part.items() if value is not None}}
            return _scheme(said, f"{name}#{key}" if key else name)
    return None


def scheme_by_names(method: Method, name: str) -> Scheme:
    """The scheme of a repository whose configs say nothing, and whose tensor ``name`` is such as only ``method`` makes."""
    return Scheme(name=method.name, method=method, where=f"header:{name}")


def _sections(config: Config, path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Quantization sections of a config, the outermost first; wrappers hold theirs in the section of the language model."""
    for key in _SECTIONS:
        section = config.get(key)
        if isinstance(section, Mapping):
            yield f"{path}{key}", section
    if depth:
        for key, value in config.items():
            if isinstance(value, Mapping) and key not in _SECTIONS:
                yield from _sections(value, f"{path}{key}.", depth - 1)


def _scheme(section: Mapping[str, Json], where: str) -> Scheme | None:
    named = _method_name(section)
    if named is None:
        return None
    by_module, by_pattern, named_settings = _by_module(section, named)
    own = _setting(section)
    everywhere = (own,) if own != Setting() else ()
    settings = tuple(dict.fromkeys((*everywhere, *named_settings, *by_module.values())))[:_MAX_SETTINGS]
    return Scheme(
        name=named,
        method=method_called(named),
        where=where,
        bits=_declared_bits(section, settings),
        settings=settings or (Setting(),),
        by_module=by_module,
        by_pattern=by_pattern,
    )


def _method_name(section: Mapping[str, Json]) -> str | None:
    """What the section calls its method; a section without a name is known by its keys, or is "unnamed" where it quantizes all the same."""
    said = section.get("quant_method")
    if isinstance(said, str) and said.strip():
        return said.strip()[:LONGEST_NAME]
    if any(section.get(key) is True for key in ("load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit")):
        return "bitsandbytes"
    if isinstance(section.get("config_groups"), Mapping):
        return "compressed-tensors"
    known = next(
        (method for method in methods() if method.says and all(_is_count(section.get(key)) for key in method.says)),
        None,
    )
    if known is not None:
        return known.name
    return UNNAMED if section else None


def _declared_bits(section: Mapping[str, Json], settings: tuple[Setting, ...]) -> int | None:
    """The one width that the section names for all modules."""
    if section.get("load_in_4bit") is True or section.get("_load_in_4bit") is True:
        return 4
    if section.get("load_in_8bit") is True or section.get("_load_in_8bit") is True:
        return 8
    widths = {setting.bits for setting in settings if setting.bits is not None}
    return widths.pop() if len(widths) == 1 else None


def _setting(section: Mapping[str, Json]) -> Setting:
    bits = next((value for key in _BITS if _is_count(value := section.get(key))), None)
    group = next(
        (value for key in _GROUP if isinstance(value := section.get(key), int) and not isinstance(value, bool)), None
    )
    if group is None and section.get("strategy") in _WHOLE_ROW:
        group = -1
    return Setting(
        bits=bits if isinstance(bits, int) else None, group_size=-1 if group is not None and group < 1 else group
    )


def _by_module(
    section: Mapping[str, Json], named: str
) -> tuple[dict[str, Setting], tuple[tuple[str, Setting], ...], tuple[Setting, ...]]:
    """Settings of single modules, of module patterns, and all others that are named.

    MLX names modules beside the common setting, AutoRound under "extra_config", compressed-tensors in the targets of its groups; HQQ has a setting
    for each kind of layer.
    """
    by_module: dict[str, Setting] = {}
    by_pattern: list[tuple[str, Setting]] = []
    settings: list[Setting] = []
    groups, kinds = section.get("config_groups"), section.get("quant_config")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        _take_group(group, by_module, by_pattern, settings)
    if isinstance(kinds, Mapping):
        settings += _hqq_settings(kinds)
    method = method_called(named)
    modules = section if method is not None and method.says else section.get("extra_config")
    for module, value in modules.items() if isinstance(modules, Mapping) else ():
        if isinstance(value, Mapping) and (setting := _setting(value)).bits is not None:
            by_module[module] = setting
    return by_module, tuple(by_pattern), tuple(settings)


def _take_group(
    group: Json, by_module: dict[str, Setting], by_pattern: list[tuple[str, Setting]], settings: list[Setting]
) -> None:
    """One config group of compressed-tensors: settings of its weights for its targets, of which "Linear" and other classes name no module."""
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(weights, Mapping):
        return
    setting = _setting(weights)
    settings.append(setting)
    targets = group.get("targets")
    for target in targets if isinstance(targets, list) else ():
        if isinstance(target, str) and target.startswith("re:"):
            by_pattern.append((target, setting))
        elif isinstance(target, str) and "." in target:
            by_module[target] = setting


def _hqq_settings(config: Mapping[str, Json]) -> list[Setting]:
    """HQQ: the parameters of all layers, or of each kind of layer under its tag."""
    parts = [config, *(value for value in config.values() if isinstance(value, Mapping))]
    weights = [part.get("weight_quant_params") for part in parts]
    return [_setting(part) for part in (*weights, *parts) if isinstance(part, Mapping) and _setting(part) != Setting()]


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 2**20
