"""The local Hub, seen through the real huggingface_hub client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_hub import LocalRepo, safetensors_prefix

if TYPE_CHECKING:
    from local_hub import LocalHub


def test_model_info_lists_the_files(local_hub: LocalHub) -> None:
    """The real client reads a repository's facts."""
    from huggingface_hub import model_info

    repo = local_hub.add(LocalRepo("org/one", {"config.json": "{}", "model.safetensors": safetensors_prefix([])}))
    info = model_info("org/one")
    assert info.sha == repo.sha
    assert [sibling.rfilename for sibling in info.siblings or ()] == ["config.json", "model.safetensors"]
