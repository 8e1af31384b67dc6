"""A section of config.json that transformers does not read for the model type that the file names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.facts.config_reader import ConfigReader
from hubaudit.findings.rule import Rule
from hubaudit.formats.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Finding, ModelFacts, RepoSnapshot

_MAIN = "config.json"
_SECTIONS = ("text_config", "llm_config", "language_config", "vision_config", "audio_config")
_SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads")


def check(snapshot: RepoSnapshot, _: ModelFacts) -> Iterator[Finding]:
    """One finding for each section with a model's shape in it that the class has no place for: it would be built from defaults instead.

    A repository that brings its own code may read what it likes.
    """
    config = snapshot.configs.get(_MAIN, {})
    kind = ConfigReader(config).known_type
    if kind is None or "auto_map" in config:
        return
    row = table("config_defaults.json")["model_types"][kind]
    own = {*row.get("sub_configs", {}), *row.get("auto_sub_configs", {}), *row["defaults"], *row.get("aliases", {})}
    for name in _SECTIONS:
        section = config.get(name)
        if not isinstance(section, dict) or name in own or not any(key in section for key in _SHAPE):
            continue
        is_all = not any(key in config for key in _SHAPE)
        built = "; the model would be built from the class's defaults" if is_all else ""
        yield RULE.found(
            f"transformers reads no `{name}` for model type {shown(config.get('model_type'))}{built}",
            where=f"{_MAIN}#{name}",
            severity="error" if is_all else None,
        )


RULE = Rule(
    id="config-section-unread",
    severity="warning",
    title="a section of the config that the model type does not read",
    about="transformers builds the class of model_type and ignores what that class has no place for. A section with a model's shape in it is then "
    "replaced by defaults, which is an error where no other section gives the shape.",
    fix="check model_type: a model with text and vision has its wrapper's type at the top",
    check=check,
)
