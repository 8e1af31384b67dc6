"""Which shape a repository has (one model, a pipeline, modules, an adapter, one file of several), and so what is read of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubaudit.formats.parts import MODULES, PIPELINE, module_parts, pipeline_parts
from hubaudit.formats.selection import Selection, select_file, select_parts, select_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hubaudit.formats.parts import Part
    from hubaudit.types import Config, RepoFile

#: What is read of a model's own folder, where the listing has it: its configuration, and where older quantizers wrote their settings.
_CONFIGS = ("config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json")
_ADAPTER = "adapter_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The configs to read, beside those that were read to know it, and the sets of weights."""

    configs: tuple[str, ...]
    selection: Selection


def layout_of(listing: Sequence[RepoFile], read: Callable[[str], Config | None], *, file: str | None = None) -> Layout:
    """Decide from the names of the files, and from the one table of contents that a pipeline or a model of modules has.

    Args:
        listing: all files of the repository.
        read: reads such a table, now; ``None`` where it cannot be used, so that the repository is taken as one model.
        file: the weights that the user chose, against which no table of contents counts.

    Raises:
        CannotAuditError, NotFoundError: ``file`` cannot be read.
    """
    paths = {one.path for one in listing}
    if file is not None:
        return _whole(select_file(listing, file), paths)
    for name, understand in ((PIPELINE, pipeline_parts), (MODULES, module_parts)):
        table = read(name) if name in paths else None
        parts = () if table is None else understand(table)
        if parts:
            return _of_parts(listing, parts, paths, as_one=name == PIPELINE)
    return _whole(select_weights(listing), paths)


def _of_parts(listing: Sequence[RepoFile], parts: Sequence[Part], paths: set[str], *, as_one: bool) -> Layout:
    folders = list(dict.fromkeys(part.folder for part in parts))
    wanted = [f"{folder}/config.json" if folder else "config.json" for folder in folders]
    selection = select_parts(listing, folders, as_one=as_one)
    return Layout(configs=tuple(name for name in wanted if name in paths), selection=selection)


def _whole(selection: Selection, paths: set[str]) -> Layout:
    """One model: its configs lie beside its weights, or in the repository's own folder."""
    folders = {_folder(one.index or one.files[0]) for one in selection.chosen}
    wanted = [*_CONFIGS, _ADAPTER, *(f"{folder}{name}" for folder in _above(folders) for name in (*_CONFIGS, _ADAPTER))]
    return Layout(configs=tuple(name for name in dict.fromkeys(wanted) if name in paths), selection=selection)


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1]


def _above(folders: set[str]) -> Iterator[str]:
    """The folders themselves; a folder of shards of one quantization lies below the model's own."""
    yield from sorted(folder for folder in folders if folder)
