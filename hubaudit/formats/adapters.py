"""What an ``adapter_config.json`` says of the model that the adapter is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubaudit.types import Config, RepoSnapshot

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_STEM = "adapter_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """Where the configuration was read, what it says, and the base model that it names: an id or a path, at a revision or none."""

    path: str
    config: Config
    base: str | None
    base_revision: str | None


def adapter_config(snapshot: RepoSnapshot) -> AdapterConfig | None:
    """The adapter that a repository is; ``None`` where it is none, or the weights that were read are those of a whole model."""
    files = [path for one in snapshot.chosen for path in one.files] or [file.path for file in snapshot.weights]
    if any(not path.rpartition("/")[2].startswith(ADAPTER_STEM) for path in files):
        return None
    folders = {path[: path.rfind("/") + 1] for path in files}
    for path in (*(f"{folder}{ADAPTER_CONFIG}" for folder in sorted(folders)), ADAPTER_CONFIG):
        config = snapshot.configs.get(path)
        if config is not None:
            base, revision = config.get("base_model_name_or_path"), config.get("revision")
            return AdapterConfig(
                path=path,
                config=config,
                base=base if isinstance(base, str) and base else None,
                base_revision=revision if isinstance(revision, str) and revision else None,
            )
    return None
