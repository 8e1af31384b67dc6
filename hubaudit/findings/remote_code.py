"""A repository whose model is built by its own Python code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Config, Finding, Json, ModelFacts, RepoSnapshot

_SHOWN = 3
#: Modules that sentence-transformers itself brings; of others it loads the repository's code.
_OWN_MODULES = "sentence_transformers."


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each config that names classes of the repository's own."""
    for path, config in snapshot.configs.items():
        for key, classes in (
            ("auto_map", _auto_classes(config)),
            ("items", _modules(config)),
            ("_class_name", _pipeline(config)),
        ):
            if classes:
                more = f" and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else ""
                yield RULE.found(
                    f"`{path}` needs the repository's own code: {', '.join(map(shown, classes[:_SHOWN]))}{more}",
                    where=path if key == "items" else f"{path}#{key}",
                )


def _auto_classes(config: Config) -> list[Json]:
    auto_map = config.get("auto_map")
    return list(dict.fromkeys(map(_first, auto_map.values()))) if isinstance(auto_map, dict) else []


def _first(value: Json) -> str:
    """A tokenizer's entry is a pair, of which either may be null."""
    return next((word for word in value if isinstance(word, str)), "") if isinstance(value, list) else str(value)


def _modules(config: Config) -> list[Json]:
    items = config.get("items")
    kinds = [item.get("type") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return [kind for kind in kinds if isinstance(kind, str) and not kind.startswith(_OWN_MODULES)]


def _pipeline(config: Config) -> list[Json]:
    """Diffusers writes a pipeline or a part of the repository's own as [module, class]."""
    name = config.get("_class_name")
    return [".".join(str(word) for word in name)] if isinstance(name, list) and name else []


RULE = Rule(
    id="remote-code",
    severity="warning",
    title="the model needs code of the repository's own",
    about="auto_map (or a module or pipeline of the repository's own) makes loaders ask for trust_remote_code=True and then run Python files of the "
    "repository. hubaudit read the configs and headers only; none of that code was run, so what it computes is not checked either.",
    fix="read the code, pin the commit with revision=, or use a port in transformers",
    check=check,
)
