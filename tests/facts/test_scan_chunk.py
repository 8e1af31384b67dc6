"""How many tokens the layers of Mamba 2 take at once, which decides what their training keeps."""

from __future__ import annotations

import pytest

from hubaudit.facts.model import understand
from hubaudit.types import RepoSnapshot

_MAMBA2 = {
    "model_type": "mamba2",
    "hidden_size": 64,
    "num_heads": 2,
    "head_dim": 64,
    "num_hidden_layers": 1,
    "vocab_size": 8,
}
_BAMBA = {"model_type": "bamba", "hidden_size": 64, "num_hidden_layers": 2, "attn_layer_indices": [1], "vocab_size": 8}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (_MAMBA2 | {"chunk_size": 96}, 96),
        (_MAMBA2, 256),
        (_BAMBA | {"mamba_chunk_size": 128}, 128),
        (_BAMBA, 256),
        ({"model_type": "mamba", "num_hidden_layers": 1, "chunk_size": 5}, None),
        ({"model_type": "llama", "num_hidden_layers": 1, "chunk_size": 5}, None),
    ],
)
def test_the_configs_word_then_that_of_its_class(config: dict[str, object], expected: int | None) -> None:
    """Mamba2Config.chunk_size and BambaConfig.mamba_chunk_size of transformers 5.23.0, 256 where nothing is said; nobody else has chunks of a scan."""
    snapshot = RepoSnapshot(repo_id="test", revision=None, commit=None, source="local", configs={"config.json": config})
    said = understand(snapshot).scan_chunk_tokens
    assert (None if said is None else said.value) == expected
