"""Whole repositories: some of the files of every shape, a few of them changed; and GGUF files by themselves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from byte_sources import BytesSource
from fuzz.choices import Choices, changed
from fuzz.documents import INDEX
from fuzz.gguf_header import WORDS, files
from fuzz.registry import target
from fuzz.reports import audited
from weight_bytes import gguf, safetensors, torch

from hubaudit.errors import CannotAuditError, HubauditError, NotFoundError
from hubaudit.formats.gguf import read_gguf
from hubaudit.hub.assemble import read_contents
from hubaudit.types import RepoFile, RepoSnapshot, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hubaudit.types import Json

_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "vocab_size": 16,
    "intermediate_size": 8,
}
_MODEL = {"model.embed_tokens.weight": ("F32", (16, 8)), "model.layers.0.self_attn.k_proj.weight": ("F32", (8, 8))}
_FILES: dict[str, Any] = {
    "config.json": _CONFIG,
    "model.safetensors.index.json": INDEX,
    "model-00001-of-00002.safetensors": safetensors({"a": ("F32", (2,))}),
    "model-00002-of-00002.safetensors": safetensors({"b": ("F32", (2,))}),
    "model.safetensors": safetensors(_MODEL),
    "pytorch_model.bin": torch(_MODEL),
    "model-Q8_0.gguf": gguf({"general.architecture": "llama"}, {"token_embd.weight": ("F16", (2, 32))}),
    "adapter_config.json": {"peft_type": "LORA", "r": 8, "base_model_name_or_path": "../../etc", "target_modules": ["q_proj"]},
    "adapter_model.safetensors": safetensors({"base_model.model.layers.0.q_proj.lora_A.weight": ("F32", (8, 8))}),
    "model_index.json": {"_class_name": "P", "unet": ["diffusers", "UNet"], "text_encoder": ["transformers", "CLIPTextModel"]},
    "unet/config.json": {"_class_name": "UNet"},
    "unet/diffusion_pytorch_model.safetensors": safetensors({"w": ("F16", (4, 4))}),
    "text_encoder/config.json": _CONFIG,
    "text_encoder/model.safetensors": safetensors(_MODEL),
    "modules.json": [{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Dense", "type": "x.Dense"}],
    "1_Dense/config.json": {"in_features": 8, "out_features": 4},
    "1_Dense/model.safetensors": safetensors({"linear.weight": ("F32", (4, 8))}),
    "quantize_config.json": {"bits": 4, "group_size": 128},
    "consolidated.safetensors": safetensors(_MODEL),
    "tf_model.h5": b"x",
    "model-00001-of-99999.safetensors": safetensors({}),
    "a b\u202e.safetensors": safetensors({"c": ("F32", (1,))}),
}  # fmt: skip
_KEYS = (
    *_CONFIG,
    *_FILES,
    "weight_map",
    "metadata",
    "path",
    "type",
    "r",
    "target_modules",
    "quant_method",
    "bits",
    "architectures",
    "transformers_weights",
)


class _Reader:
    """A repository in memory, as `hub.assemble` reads one."""

    parallel = 1

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._held = files
        self.files = tuple(RepoFile(path=path, size_bytes=len(content)) for path, content in sorted(files.items()))

    def read(self, path: str, max_bytes: int) -> bytes:
        if path not in self._held:
            raise NotFoundError(f"no {path!a}")
        return self._held[path][:max_bytes]

    def open(self, path: str) -> BytesSource:
        return BytesSource(self.read(path, 10**9), path=path)

    def headers_at_once(self, index: str) -> tuple[Json, Mapping[str, Json]] | None:
        return None


def _choices() -> Iterator[bytes]:
    yield bytes(len(_FILES))
    yield bytes([1, 1, 1] + [0] * 40)
    yield bytes(range(40, 120))


@target("repository", allowed=(HubauditError,), seeds=_choices)
def repository(data: bytes) -> None:
    """Some of the files of every shape of repository, a few of them changed, through reading and the whole audit."""
    choices = Choices(data)
    held: dict[str, bytes] = {}
    for path, content in _FILES.items():
        way = choices.below(6)
        if way > 1:
            continue
        made = content if way == 0 or isinstance(content, bytes) else changed(choices, content, _KEYS)
        held[path] = made if isinstance(made, bytes) else json.dumps(made).encode()
        if way == 1 and isinstance(content, bytes):
            at = choices.below(len(content))
            held[path] = content[:at] + bytes([choices.below(256)]) + content[at + choices.below(3) :]
    contents = read_contents(_Reader(held))
    snapshot = RepoSnapshot(
        repo_id="made/up",
        revision=None,
        commit=None,
        source="local",
        files=_Reader(held).files,
        configs=contents.configs,
        weights=tuple(contents.weights),
        indexes=tuple(contents.indexes),
        problems=tuple(contents.problems),
        chosen=tuple(contents.chosen),
        others=tuple(contents.others),
    )
    try:
        audited(snapshot, Workload(mode=choices.pick(("infer", "kv", "train"))), form=choices.below(256))
    except HubauditError as error:
        assert isinstance(error, CannotAuditError), f"exit code {error.exit_code}: {error}"


@target("gguf-audit", allowed=(HubauditError,), seeds=files, dictionary=WORDS)
def whole_audit(data: bytes) -> None:
    """The header of a file that is large enough for whatever it announces, through the whole audit."""
    read = read_gguf(BytesSource(data, path="model.gguf", claimed_size=2**50))
    snapshot = RepoSnapshot(repo_id="made/up", revision=None, commit=None, source="local", weights=(read,))
    audited(snapshot, Workload(mode=("infer", "kv", "train")[len(data) % 3]))
