"""The tables of contents of models that are made of parts: diffusers' ``model_index.json`` and sentence-transformers' ``modules.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.formats.documents import is_repo_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Config

PIPELINE = "model_index.json"
MODULES = "modules.json"
MAX_PARTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: the folder that it lies in (``""`` is the repository's own), and the library and class that load it."""

    name: str
    folder: str
    library: str | None
    class_name: str


def pipeline_parts(index: Config) -> tuple[Part, ...]:
    """The parts that a ``model_index.json`` names: ``"unet": ["diffusers", "UNet2DConditionModel"]``; ``[null, null]`` is one left out."""
    return tuple(_pipeline_parts(index))[:MAX_PARTS]


def _pipeline_parts(index: Config) -> Iterator[Part]:
    for name, value in index.items():
        if (
            name.startswith("_")
            or not isinstance(value, list)
            or len(value) != 2
            or not is_repo_path(name)
            or "/" in name
        ):
            continue
        library, class_name = value
        if isinstance(class_name, str):
            known = library if isinstance(library, str) else None
            yield Part(name=name, folder=name, library=known, class_name=class_name)


def module_parts(modules: Config) -> tuple[Part, ...]:
    """The modules that a ``modules.json`` lists, as ``documents.parse_array`` keeps them: path and class of each, in the order of their use."""
    return tuple(_module_parts(modules))[:MAX_PARTS]


def _module_parts(modules: Config) -> Iterator[Part]:
    listed = modules.get("items")
    for row in listed if isinstance(listed, list) else ():
        if not isinstance(row, dict):
            continue
        path, kind, name = row.get("path"), row.get("type"), row.get("name")
        if not isinstance(path, str) or not isinstance(kind, str) or not (path == "" or is_repo_path(path)):
            continue
        library, _, class_name = kind.rpartition(".")
        label = path or (str(name) if isinstance(name, str) else "0")
        yield Part(name=label, folder=path, library=library.partition(".")[0] or None, class_name=class_name)
