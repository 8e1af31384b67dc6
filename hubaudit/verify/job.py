"""What the child process is asked to run: one record, written as JSON, free of torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from hubaudit.errors import UsageError
from hubaudit.types import Workload

#: Recipe → dtype that weights are loaded in, and dtype of autocast.
RECIPES: dict[str, tuple[str, str | None]] = {
    "fp32": ("fp32", None),
    "bf16": ("bf16", None),
    "fp16": ("fp16", None),
    "amp": ("fp32", "bf16"),
    "amp-fp16": ("fp32", "fp16"),
}
_QUANTS = (None, "int8", "nf4", "fp4")
_CACHES = (None, "dynamic", "static")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run: ``source`` is a Hub id or a folder to load real weights from; ``None`` asks for random ones of the config's shapes.

    ``workload`` has nothing open (:func:`hubaudit.estimate.modes.definite`). ``repeats`` is how often the workload runs again after the
    first time, to see what stays behind. ``timeline`` records the allocator's history on CUDA.
    """

    config: dict[str, Any]
    workload: Workload
    device: str
    source: str | None = None
    revision: str | None = None
    repeats: int = 0
    timeline: str | None = None
    title: str = ""

    @property
    def is_training(self) -> bool:
        """Whether whole steps are run."""
        return self.workload.mode == "train"

    @property
    def dtype(self) -> str:
        """What weights are loaded in."""
        if self.is_training:
            return RECIPES[self.workload.recipe or "bf16"][0]
        return (self.workload.dtype or "bf16").lower()

    @property
    def autocast(self) -> str | None:
        """The type of a mixed-precision step."""
        return RECIPES[self.workload.recipe or "bf16"][1] if self.is_training else None

    @property
    def tokens(self) -> int:
        """Tokens of each prompt, or of each training sequence."""
        return (self.workload.sequence_tokens if self.is_training else self.workload.prompt_tokens) or 1

    def to_json(self) -> str:
        """For the child."""
        return json.dumps(asdict(self))


def from_json(text: str) -> Job:
    """The job that :meth:`Job.to_json` wrote."""
    fields = json.loads(text)
    work = fields.pop("workload")
    lists = {name: tuple(value) for name, value in work.items() if isinstance(value, list)}
    return Job(workload=Workload(**{**work, **lists}), **fields)


def check(workload: Workload) -> None:
    """Raise where ``workload`` asks for what is not run here.

    Raises:
        UsageError: it names what.
    """
    outside = {
        f"--mode {workload.mode}": workload.mode not in ("infer", "train"),
        f"--runtime {workload.runtime}": workload.runtime != "transformers",
        f"--cache {workload.cache}": workload.mode != "train" and workload.cache not in _CACHES,
        f"--kv-dtype {workload.kv_dtype}": workload.kv_dtype not in (None, "auto", workload.dtype),
        f"--quant {workload.quant}": workload.quant not in _QUANTS,
        f"--loss {workload.loss}": workload.loss not in (None, "full", "held"),
        f"--recipe {workload.recipe}": workload.mode == "train" and (workload.recipe or "bf16") not in RECIPES,
        "--selective-checkpointing": workload.gradient_checkpointing == "selective",
        f"--checkpoint-every {workload.checkpoint_every}": workload.checkpoint_every > 1,
        f"--runtime-version {workload.runtime_version}": workload.runtime_version is not None,
        f"--offload {workload.offload}": workload.offload is not None,
        f"--zero {workload.zero}": bool(workload.zero),
        f"--fsdp {workload.fsdp}": bool(workload.fsdp),
        "--draft-tokens": workload.draft_tokens > 0,
        "several GPUs": max(workload.gpus, workload.tp, workload.pp, workload.ep) > 1,
        "quantized base weights without --lora": workload.mode == "train"
        and bool(workload.quant)
        and not workload.lora,
    }
    for words, is_outside in outside.items():
        if is_outside:
            raise UsageError(f"verify does not run {words}", hint="the estimate is `hubaudit REPO`, without verify")
